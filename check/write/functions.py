"""SQL functions of time on random elements, compared with exact arithmetic."""

import fractions
import math
import random
import time

from network import CheckFailed, expect
from node import Node

BASE_NS = 1_763_000_000 * 10**9
ELEMENTS = 1_500
SECONDS = 12.0
NS = 10**9


def stored(node: Node, chance: random.Random) -> list[tuple[int, int | None, float | None]]:
    """Writes elements with distinct times in any order, and returns them in the order of their numbers."""
    seconds, count, rows = chance.sample(range(4 * ELEMENTS), ELEMENTS), 2**53, []
    for second in seconds:
        count = 0 if chance.random() < 0.02 else count + chance.randint(0, 9)
        whole = chance.choice([count, count, None, 2**62 + chance.randint(0, 99), -chance.randint(0, 5)])
        real = chance.choice([float(count), None, chance.uniform(-9, 9)])
        if whole is not None or real is not None:
            rows.append((BASE_NS + second * NS + chance.choice([0, 5]), whole, real))
    body = []
    for at, whole, real in rows:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // NS))
        body.append({"source_time": f"{stamp}.{at % NS:09}Z", "whole": whole, "real": real})
    status, answer = node.ask("POST", "/api/v1/streams/counted/elements", body)
    expect(status == 200 and answer["stored"] == len(rows), f"{len(rows)} elements are written")
    return rows


def expected(function: str, values: list[tuple[int, int | float]], at: int):
    """The value by definition; `values` have distinct times."""
    by_time = sorted(values)
    if function == "interpolate":
        before = [one for one in by_time if one[0] <= at]
        after = [one for one in by_time if one[0] >= at]
        if not before or not after:
            return None
        (start, low), (end, high) = before[-1], after[0]
        share = fractions.Fraction(at - start, end - start) if end > start else 0
        return float(fractions.Fraction(low) + (fractions.Fraction(high) - fractions.Fraction(low)) * share)
    if not values:
        return None
    if function in ("first", "last"):
        return by_time[0 if function == "first" else -1][1]
    if len(values) < 2:
        return None
    if function == "delta":
        return by_time[-1][1] - by_time[0][1]
    return rate(values)


def rate(values: list[tuple[int, int | float]]) -> float | None:
    """The increase of a counter per second; `values` are in the order of their arrival."""
    start = before = values[0]
    increase = fractions.Fraction(0)
    for at, value in values[1:]:
        if at < before[0]:
            continue
        increase += fractions.Fraction(value) - (fractions.Fraction(before[1]) if value >= before[1] else 0)
        before = (at, value)
    if before[0] == start[0]:
        return None
    return float(increase / fractions.Fraction(before[0] - start[0], NS))


def agrees(found, wanted) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6)


def check(node: Node, seed: int) -> None:
    chance = random.Random(seed)
    node.create("counted", whole="integer", real="double")
    rows = stored(node, chance)
    end, asked = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        function = chance.choice(["first", "last", "delta", "rate", "interpolate"])
        column = chance.choice([1, 2])
        low = BASE_NS + chance.randint(-10, 4 * ELEMENTS) * NS
        high = low + chance.choice([0, 1, 5, 60, 4 * ELEMENTS]) * NS
        at = chance.choice([low, high, chance.randint(low, high)])
        values = [(row[0], row[column]) for row in rows if low <= row[0] < high and row[column] is not None]
        more = f", {at}" if function == "interpolate" else ""
        name = ("", "whole", "real")[column]
        where = f"where source_time >= {low} and source_time < {high}"
        found = node.sql(f"select {function}({name}, source_time{more}) from counted {where}")[0][0]
        wanted = expected(function, values, at)
        if not agrees(found, wanted):
            raise CheckFailed(f"seed {seed}: {function}({name}) {where} at {at} is {wanted}, not {found}")
        asked += 1
    expect(asked > 20, f"{asked} random questions are answered as by definition")
