"""The invariants of stored elements: the judge of this check.

The judge knows only what clients received. An element that a client received is acknowledged; from then
on it exists exactly once, under its number and with its content, and no other element gets its number.
"""


import math


class Lost(Exception):
    """A promise was broken."""


class Ledger:
    """All elements of one node or log ever seen."""

    def __init__(self):
        self.acknowledged: dict[tuple[str, str, int], str] = {}
        self.numbers: dict[tuple[str, int], tuple[str, str]] = {}
        self.seen: dict[tuple[str, str, int], str] = {}
        # By stream, the first number kept by the trims requested, and by those acknowledged.
        self.trims: dict[str, tuple[float, float]] = {}
        self.judged = 0

    def _see(self, stream: str, epoch: str, number: int, content: str) -> None:
        identity = (stream, epoch, number)
        before = self.seen.setdefault(identity, content)
        if before != content:
            raise Lost(f"{identity} was {before[:80]!r} and is {content[:80]!r}")

    def shown(self, stream: str, epoch: str, number: int, content: str) -> None:
        """Records that a client received this element."""
        self._see(stream, epoch, number, content)
        self.acknowledged[stream, epoch, number] = content
        before = self.numbers.setdefault((stream, number), (epoch, content))
        if before != (epoch, content):
            raise Lost(f"number {number} of {stream} was used twice: {before[0]} and {epoch}")

    def trimmed(self, stream: str, first: float, acknowledged: bool) -> None:
        """The numbers before `first` may be missing from now on, and must be once that is acknowledged. Infinity: the
        stream is removed, entirely or not at all."""
        requested, done = self.trims.get(stream, (0, 0))
        self.trims[stream] = (max(requested, first), max(done, first) if acknowledged else done)

    def holds(self, stream: str, elements: list[tuple[str, int, str]]) -> None:
        """The stream holds exactly these elements (epoch, number, content), in this order."""
        last = None
        contents: dict[str, int] = {}
        for epoch, number, content in elements:
            self._see(stream, epoch, number, content)
            if last is not None and number != last + 1:
                raise Lost(f"{stream}: {number} follows {last}")
            last = number
            twin = contents.setdefault(content, number)
            if twin != number:
                raise Lost(f"{stream}: {number} and {twin} are the same element: {content[:80]!r}")
        held = {(stream, epoch, number) for epoch, number, _ in elements}
        requested, done = self.trims.get(stream, (0, 0))
        back = [number for _, number, _ in elements if number < done]
        if back:
            raise Lost(f"{stream}: {back[0]} was trimmed or removed, and is there again")
        missing = [key for key in self.acknowledged if key[0] == stream and key not in held]
        if requested < math.inf or not elements:
            missing = [key for key in missing if key[2] >= requested]
        if missing:
            raise Lost(f"{len(missing)} acknowledged elements are lost, the first is {missing[0]}")
        self.judged += len(elements)


def prove_yourself() -> int:
    """Shows that the judge finds each kind of loss; returns how many were tried."""
    def ledger() -> Ledger:
        one = Ledger()
        for number in (1, 2, 3):
            one.shown("s", "e", number, f"content {number}")
        return one
    whole = [("e", n, f"content {n}") for n in (1, 2, 3)]
    ledger().holds("s", whole)
    planted = {
        "lost at the end": whole[:2],
        "lost in the middle": [whole[0], whole[2]],
        "doubled under the next number": [*whole, ("e", 4, "content 3")],
        "doubled under its number": [*whole, whole[2]],
        "another content": [*whole[:2], ("e", 3, "else")],
        "in another order": [whole[1], whole[0], whole[2]],
        "in another epoch": [*whole[:2], ("f", 3, "content 3")],
    }
    for name, elements in planted.items():
        try:
            ledger().holds("s", elements)
        except Lost:
            continue
        raise AssertionError(f"the judge does not see an element {name}")
    back, partly = ledger(), ledger()
    back.trimmed("s", 2, True)
    partly.trimmed("s", math.inf, False)
    partly.holds("s", [])
    for one, elements in ((back, whole), (partly, whole[:2])):
        try:
            one.holds("s", elements)
        except Lost:
            continue
        raise AssertionError(f"the judge does not see a trim of {one.trims} in {elements}")
    try:
        ledger().shown("s", "f", 3, "another")
    except Lost:
        return len(planted) + 3
    raise AssertionError("the judge does not see a number used twice")
