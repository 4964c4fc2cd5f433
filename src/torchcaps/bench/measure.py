"""Fair times on a machine that is not alone: contenders take turns, and are compared within a round."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torchcaps.bench.devices import Clock, wall_clock

Times = dict[str, list[float | None]]  # contender -> seconds in each round, None where it did not take part
Note = Callable[[str], object]  # tells the user what is being done


@dataclass(frozen=True)
class Contender:
    """Something to time. It takes part in every n-th round; without ``warm_up`` its first step counts."""

    name: str
    step: Callable[[], object]
    every: int = 1
    warm_up: bool = True


def under(heading: str, note: Note) -> Note:
    """Notes with a heading before them."""
    return lambda text: note(f"{heading}: {text}")


def key(*parts: str) -> str:
    """The name of a contender from what tells it from the others."""
    return "/".join(parts)


def race(contenders: Sequence[Contender], rounds: int, note: Note = lambda _: None, clock: Clock = wall_clock) -> Times:
    """Seconds of each contender in each round; none of one that a GPU has too little memory for.

    In a round every contender that takes part runs once, so a slow phase of the machine meets all of them. Each round
    starts with another contender: none always runs behind the same one, whose traces are in the caches.
    """
    too_large = set()
    for contender in contenders:
        if contender.warm_up:
            note(f"warming up {contender.name}")
            if _seconds(contender, clock) is None:
                too_large.add(contender.name)
    times: Times = {contender.name: [None] * rounds for contender in contenders}
    for turn in range(rounds):
        entered = [c for c in contenders if turn % c.every == 0 and c.name not in too_large]
        start = turn % max(1, len(entered))
        for contender in entered[start:] + entered[:start]:
            note(f"round {turn + 1} of {rounds}: {contender.name}")
            times[contender.name][turn] = _seconds(contender, clock)
    return times


def _seconds(contender: Contender, clock: Clock) -> float | None:
    try:
        return clock(contender.step)
    except torch.OutOfMemoryError:  # a GPU's; what the step had allocated is free again, and goes to the others
        torch.cuda.empty_cache()
        return None


@dataclass(frozen=True)
class Spread:
    """The middle of some values, and where half of them lie."""

    median: float
    lower: float  # quartiles
    upper: float
    least: float
    count: int


def spread(values: Sequence[float | None]) -> Spread:
    """The spread of the values that are there.

    >>> spread([3.0, None, 1.0, 2.0])
    Spread(median=2.0, lower=1.5, upper=2.5, least=1.0, count=3)
    """
    there = sorted(value for value in values if value is not None)
    if not there:
        return Spread(math.nan, math.nan, math.nan, math.nan, 0)
    if len(there) == 1:
        return Spread(there[0], there[0], there[0], there[0], 1)
    lower, median, upper = statistics.quantiles(there, n=4, method="inclusive")
    return Spread(median, lower, upper, there[0], len(there))


def ratio(above: Sequence[float | None], below: Sequence[float | None]) -> Spread:
    """``above`` relative to ``below``, round by round, over the rounds in which both took part."""
    return spread([a / b for a, b in zip(above, below, strict=True) if a is not None and b is not None])


def total(series: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The sum of several contenders in each round; None where one of them is missing."""
    sums: list[float | None] = []
    for values in zip(*series, strict=True):
        there = [value for value in values if value is not None]
        sums.append(sum(there) if len(there) == len(values) else None)
    return sums


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """(p, c) of the power law c size^p nearest to the values, by least squares of the logarithms.

    >>> fitted_exponent([1, 2, 4], [3, 12, 48])
    (2.0, 3.0)
    """
    slope, intercept = statistics.linear_regression([math.log(s) for s in sizes], [math.log(v) for v in values])
    return round(slope, 12), round(math.exp(intercept), 12)
