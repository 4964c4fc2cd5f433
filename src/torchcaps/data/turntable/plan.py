"""Which pictures turntable has: every toy, its views and lights, and where the two cameras then are."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.camera import Placement, camera
from torchcaps.data.turntable.objects import CATEGORIES, TEST_INSTANCES, TRAIN_INSTANCES, Solid
from torchcaps.data.turntable.render import View
from torchcaps.data.turntable.shading import LIGHTINGS

Integers: TypeAlias = NDArray[np.int64]

ELEVATIONS = tuple(range(30, 71, 5))  # degrees
AZIMUTHS = tuple(range(0, 360, 20))  # degrees
VIEWS = len(ELEVATIONS) * len(AZIMUTHS) * len(LIGHTINGS)  # of one instance: 972
FULL = VIEWS * len(CATEGORIES) * len(TRAIN_INSTANCES)  # pairs of a split: 24,300


@dataclass(frozen=True)
class Plan:
    """The factors of each pair ``[N]``, as positions in their lists (the instance as its number)."""

    category: Integers
    instance: Integers
    elevation: Integers
    azimuth: Integers
    lighting: Integers

    def __len__(self) -> int:
        return len(self.category)

    @property
    def view(self) -> Integers:
        """A number 0 .. 971 for elevation, azimuth and lighting together."""
        return (self.elevation * len(AZIMUTHS) + self.azimuth) * len(LIGHTINGS) + self.lighting


def plan_split(split: str, pairs: int, seed: int) -> Plan:
    """The pairs of a split, in random order: as many of each instance (to within one), its views spread evenly."""
    instances = TRAIN_INSTANCES if split == "train" else TEST_INSTANCES
    random = np.random.default_rng([seed, split == "train", 3])
    owners = [(category, instance) for instance in instances for category in range(len(CATEGORIES))]
    rows = []
    for number, owner in enumerate(owners):
        share = pairs // len(owners) + (number < pairs % len(owners))
        views = _spread_views(random)[:share]  # [share, 3]
        rows.append(np.concatenate([np.tile(owner, (share, 1)), views], axis=1))
    table = random.permutation(np.concatenate(rows))  # [pairs, 5]
    category, instance, elevation, azimuth, lighting = table.T.copy()
    return Plan(category, instance, elevation, azimuth, lighting)


def _spread_views(random: np.random.Generator) -> Integers:
    """All views of an instance ``[972, 3]``, ordered so that any beginning of them is spread evenly.

    They come in rounds of 18. Each round has every azimuth once, every elevation twice and every lighting three times,
    and pairs them in another way.
    """
    azimuths, elevations, lightings = len(AZIMUTHS), len(ELEVATIONS), len(LIGHTINGS)
    place, azimuth = np.divmod(np.arange(VIEWS), azimuths)
    step, shift = np.divmod(random.permutation(elevations * lightings)[place], elevations)
    elevation = (azimuth + shift) % elevations
    lighting = (azimuth + shift + step) % lightings
    # Another order of each factor for each instance: the last round, cut short, then favours nothing over all of them.
    names = [random.permutation(size) for size in (elevations, azimuths, lightings)]
    return np.stack([names[0][elevation], names[1][azimuth], names[2][lighting]], axis=1)


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
