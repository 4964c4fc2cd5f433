"""What can be said of a network from a limited number of images."""

import math
from typing import NamedTuple

EXACT_BELOW = 25  # discordant images: of more, chi-squared is close enough
NORMAL_95 = 1.959963984540054  # 95 % of a normal distribution lie within that many standard deviations


def wilson_interval(wrong: int, images: int) -> tuple[float, float]:
    """The 95 % score interval of Wilson for the error that ``wrong`` of so many independent images stand for.

    Unlike the plain mean plus or minus two standard errors it also holds where no image, or every one, is wrong.

    >>> tuple(round(end, 4) for end in wilson_interval(0, 10))
    (0.0, 0.2775)
    """
    if not 0 <= wrong <= images or not images:
        raise ValueError(f"{wrong} wrong of {images} images: expected at least one image, and not more wrong than that")
    share, square = wrong / images, NORMAL_95**2
    centre = (share + square / (2 * images)) / (1 + square / images)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / images + square / (4 * images**2)) / (1 + square / images)
    return (max(0.0, centre - half) if wrong else 0.0), (min(1.0, centre + half) if wrong < images else 1.0)


class McNemar(NamedTuple):
    """McNemar's test of two networks on the same images: whether they are wrong equally often."""

    only_first: int  # images that only the first network gets right
    only_second: int
    statistic: float | None  # chi-squared, with one degree of freedom; None where the test is exact
    p: float  # chance of a difference at least as large between networks that are equally good

    @property
    def method(self) -> str:
        """What was computed, for a reader who knows the test."""
        return "exact binomial" if self.statistic is None else f"chi-squared {self.statistic:.2f}, continuity-corrected"


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """The test from the numbers of images that only the one network, and only the other, gets right.

    Exact (two-sided binomial) below 25 such images, by chi-squared with the continuity correction from there on.

    >>> mcnemar(1, 5).p
    0.21875
    """
    both, difference = only_first + only_second, abs(only_first - only_second)
    if both < EXACT_BELOW:
        tail = sum(math.comb(both, k) for k in range(min(only_first, only_second) + 1)) / 2**both
        return McNemar(only_first, only_second, None, min(1.0, 2 * tail))
    statistic = max(0, difference - 1) ** 2 / both
    return McNemar(only_first, only_second, statistic, math.erfc(math.sqrt(statistic / 2)))
