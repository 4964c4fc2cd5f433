"""From values to places on a chart, and the round numbers beside its axes."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """The range of values from one end of an axis to the other."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def from_zero(high: float, *, ticks: int = 5, fit: bool = False) -> Axis:
    """An axis from 0 to the round number above ``high``; with ``fit`` to ``high`` itself.

    >>> from_zero(0.83).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    high = high if high > 0 else 1.0
    step = round_step(high / ticks)
    last = math.floor(high / step + 1e-9) if fit else math.ceil(high / step - 1e-9)
    marks = tuple(round(step * k, 12) for k in range(last + 1))
    return Axis(0.0, high if fit else marks[-1], marks)


def logarithmic(low: float, high: float) -> Axis:
    """An axis of ratios, with some room at both ends.

    >>> logarithmic(0.004, 0.7).ticks
    (0.01, 0.1)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1,) if last - first > 2 else (1, 2, 5)
    marks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    low, high = low / 1.2, high * 1.2
    return Axis(low, high, tuple(float(f"{mark:.3g}") for mark in marks if low <= mark <= high), logarithmic=True)


def round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, ... (by a power of ten) that is at least that."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
