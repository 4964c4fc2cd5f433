"""Which pictures the set has: the full product of its factors, or a balanced part of it."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.proportions import TEST_INSTANCES, TRAIN_INSTANCES
from torchcaps.data.turntable.shading import LIGHTINGS
from torchcaps.data.turntable.solids import CATEGORIES

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
