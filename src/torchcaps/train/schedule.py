"""The learning rate over a run, as a share of its highest value."""

import math

from torchcaps.train.recipe import Schedule

START = 0.04  # of a one-cycle rate


def rate_at(step: int, *, steps: int, schedule: Schedule, warm_up: float) -> float:
    """Share of the highest rate at a step: 1, or one cycle (Smith and Topin 2017) of two half cosines.

    >>> [round(rate_at(step, steps=100, schedule="one-cycle", warm_up=0.3), 2) for step in (0, 15, 30, 65, 100)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if schedule == "constant":
        return 1.0
    rise = warm_up * steps
    if step < rise:
        return START + (1 - START) * (1 - math.cos(math.pi * step / rise)) / 2
    return (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1.0, steps - rise)))) / 2
