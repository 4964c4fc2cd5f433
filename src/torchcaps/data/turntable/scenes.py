"""From the factors of a pair to its two views: where the object stands, how large it is, and how it is painted."""

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.camera import Placement, camera
from torchcaps.data.turntable.plan import AZIMUTHS, ELEVATIONS, VIEWS, Plan
from torchcaps.data.turntable.render import View
from torchcaps.data.turntable.solids import Solid

PLACE = 0.2  # an object stands up to this far from the middle, each way; its radius is about 1
SCALE = (0.68, 0.94)  # and is enlarged by something between these
PAINT = (0.45, 0.7)  # how much light it sends back: one value for an instance, ...
FADE = 0.18  # ... up to this much more or less in a picture


def stereo_views(solid: Solid, plan: Plan, pairs: NDArray[np.int64], seed: int) -> list[View]:
    """The views of pairs of one instance: left, right, left, right ...

    What is random about a pair follows from the seed and its factors, so it looks the same in every subset.
    """
    category, instance = int(plan.category[pairs[0]]), int(plan.instance[pairs[0]])
    random = np.random.default_rng([seed, category, instance, 4])
    paint = random.uniform(*PAINT)
    chances = random.random((VIEWS, 4))[plan.view[pairs]]  # [pairs, 4]
    views = []
    for pair, (x, y, size, fade) in zip(pairs.tolist(), chances.tolist(), strict=True):
        scale = (SCALE[0] + (SCALE[1] - SCALE[0]) * size) / solid.radius
        place = (PLACE * (2 * x - 1), PLACE * (2 * y - 1))
        azimuth = AZIMUTHS[plan.azimuth[pair]]
        placement = Placement(azimuth, scale, place, (solid.centre[0], solid.centre[1], solid.floor))
        target = np.array([0.0, 0.0, (solid.centre[2] - solid.floor) / solid.radius])
        for side in (-1, 1):
            eye = camera(ELEVATIONS[plan.elevation[pair]], side, target)
            views.append(View(eye, placement, int(plan.lighting[pair]), paint + FADE * (2 * fade - 1)))
    return views
