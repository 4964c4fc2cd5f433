"""What can be said of a network from a limited number of images."""

import math

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
