"""The judge of copies: each element is stored once or named as lost, with the true number.

It knows two things: the records that were ever in the logs of origin and subscriber, and the losses that the
subscriber named. A loss that a node named just before it was killed, or while its disk was full before that, may be
named again by its next life, because the position after it was not yet safe: so much more may be named than was
lost, and no more.
"""

import collections
import dataclasses

from frames import Record

# Losses that a life names within this time of its end by SIGKILL may be named again; longer than the slowest
# sync that is planted here takes to make the position after them safe.
REPEATABLE_S = 5.0
# On a full disk no position becomes safe. A link then reconnects until there is room, and waits at most this long
# before it does.
RECONNECT_S = 30.0


def is_repeatable(named_at: float, killed_at: float | None, full: list[tuple[float, float]]) -> bool:
    """Whether the next life may name a loss again; `full` are the times in which the disk was full."""
    if killed_at is None:
        return False
    in_time = any(since <= named_at <= until and killed_at < until + RECONNECT_S for since, until in full)
    return in_time or named_at > killed_at - REPEATABLE_S


@dataclasses.dataclass(frozen=True)
class Named:
    """A loss that a subscriber named: number of elements, reason, and whether the next run may name them again."""
    elements: int
    reason: str
    repeatable: bool


@dataclasses.dataclass
class Verdict:
    """The findings for one copy."""
    stored: int = 0
    missing: int = 0
    named: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    repeatable: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def text(self) -> str:
        named = ", ".join(f"{count} {reason}" for reason, count in sorted(self.named.items())) or "none"
        return f"{self.stored} stored, {self.missing} missing, named lost: {named}"


def distinct(records, name: str, verdict: Verdict) -> list[Record]:
    """The records by their own numbers, without duplicates: a record that is read twice is the same record."""
    held: dict[int, Record] = {}
    for record in records:
        before = held.setdefault(record.number, record)
        if before != record:
            verdict.fault(f"{name}: number {record.number} was used twice, for {before} and {record}")
    return [held[number] for number in sorted(held)]


def judge(origin, copy, named: list[Named], begin: int, reliable: bool) -> Verdict:
    """The copy's elements after number `begin` of the origin."""
    verdict = Verdict()
    source = {(one.epoch, one.number): one for one in distinct(origin, "origin", verdict)}
    last, seen = 0, set()
    for one in distinct(copy, "copy", verdict):
        identity = (one.origin_epoch, one.origin_number)
        if identity in seen:
            verdict.fault(f"number {identity[1]} of the origin is stored again, as {one.number}")
            continue
        seen.add(identity)
        if identity[1] <= last:
            verdict.fault(f"number {identity[1]} of the origin is stored after {last}")
        last = max(last, identity[1])
        if identity not in source:
            verdict.fault(f"the origin never had {identity}, which is stored as {one.number}")
        elif source[identity].content != one.content:
            verdict.fault(f"number {identity[1]} of the origin is stored with another content")
    verdict.stored = sum(1 for _, number in seen if number > begin)
    missing = [number for epoch, number in source if begin < number <= last and (epoch, number) not in seen]
    verdict.missing = len(missing)
    for one in named:
        verdict.named[one.reason] += one.elements
        verdict.repeatable += one.elements * one.repeatable
    total = sum(verdict.named.values())
    if total < verdict.missing:
        verdict.fault(f"{verdict.missing - total} elements are missing and not named, "
                      f"numbers {ranges(sorted(missing))}")
    if total > verdict.missing + verdict.repeatable:
        verdict.fault(f"{total} are named lost, {verdict.missing} are missing"
                      f" (and {verdict.repeatable} may have been named twice)")
    newest = max((number for _, number in source), default=0)
    if reliable and last < newest:
        verdict.fault(f"it ends at {last}, the origin at {newest}")
    return verdict


def ranges(numbers: list[int], most: int = 6) -> str:
    """Numbers in short form: 3-9, 12."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    text = ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in found[:most])
    return text + (f" and {len(found) - most} more ranges" if len(found) > most else "")


def prove_yourself() -> int:
    """Shows that the judge finds each kind of fault; returns how many were tried."""
    def at_origin(*numbers: int) -> list[Record]:
        return [Record(7, n, 0, 0, 100 + n) for n in numbers]

    def copied(*numbers: int) -> list[Record]:
        return [Record(9, n, 7, at, 100 + at) for n, at in enumerate(numbers, 1)]
    origin, lost = at_origin(1, 2, 3, 4), [Named(1, "trimmed", False)]
    good = [
        (origin, copied(1, 2, 3, 4), [], True),
        (origin, copied(1, 3, 4), lost, True),
        (origin, copied(1, 3, 4), [*lost, Named(1, "trimmed", True)], True),
        (origin + origin[2:], copied(1, 2, 3, 4) + copied(1, 2, 3, 4)[2:], [], True),
        (origin, copied(1, 2, 3), [], False),
    ]
    for source, copy, named, reliable in good:
        verdict = judge(source, copy, named, 0, reliable)
        if verdict.faults:
            raise AssertionError(f"the judge sees a fault where none is: {verdict.faults}")
    in_full = [(10.0, 20.0)]
    cases = [(96.0, 100.0, []), (12.0, 19.0, in_full), (12.0, 40.0, in_full)]
    others = [(94.0, 100.0, []), (12.0, None, in_full), (12.0, 60.0, in_full), (22.0, 40.0, in_full)]
    if not all(is_repeatable(*case) for case in cases) or any(is_repeatable(*case) for case in others):
        raise AssertionError("the judge mistakes which losses may be named again")
    planted = {
        "missing and not named": (origin, copied(1, 3, 4), [], True),
        "named and there": (origin, copied(1, 2, 3, 4), lost, True),
        "named twice": (origin, copied(1, 3, 4), lost * 2, True),
        "stored twice": (origin, copied(1, 2, 2, 3, 4), [], True),
        "fetched from the beginning": (origin, copied(1, 2, 3, 4, 1, 2, 3, 4), [], True),
        "in another order": (origin, copied(1, 3, 2, 4), [], True),
        "of another content": (origin, [*copied(1, 2, 3), Record(9, 4, 7, 4, 1)], [], True),
        "invented": (origin, copied(1, 2, 3, 4, 5), [], True),
        "missing at the end": (origin, copied(1, 2, 3), [], True),
        "under a number that was used": (origin, [*copied(1, 2, 3, 4), Record(9, 4, 7, 3, 103)], [], True),
    }
    for name, (source, copy, named, reliable) in planted.items():
        if not judge(source, copy, named, 0, reliable).faults:
            raise AssertionError(f"the judge does not see an element {name}")
    return len(planted)
