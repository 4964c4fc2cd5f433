"""The five categories, and an instance as a solid with known bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from torchcaps.data.turntable.creatures import animal, person
from torchcaps.data.turntable.furniture import chair
from torchcaps.data.turntable.machines import airplane, car
from torchcaps.data.turntable.primitives import Array, Shape
from torchcaps.data.turntable.proportions import Draw, proportions

CATEGORIES: dict[str, Callable[[Draw], Shape]] = {
    "animal": animal,
    "person": person,
    "airplane": airplane,
    "car": car,
    "chair": chair,
}

_REACH = 2.6  # every object lies within this of the origin
_GRID = 48  # points along each side of the grid that finds the bounds


@dataclass(frozen=True)
class Solid:
    """An object in its own units: its distances, where it touches the ground, and a sphere around it."""

    shape: Shape
    centre: tuple[float, float, float]
    radius: float
    floor: float  # z of its lowest point


@cache
def solid(seed: int, category: int, instance: int) -> Solid:
    """An instance of a category; found once, then remembered."""
    build = list(CATEGORIES.values())[category]
    return bounded(build(proportions(seed, category, instance)))


def bounded(shape: Shape) -> Solid:
    """Find a shape's bounds: points of a grid that are near its surface are moved onto it, and enclosed."""
    ticks = np.linspace(-_REACH, _REACH, _GRID, dtype=np.float32)
    grid = np.stack(np.meshgrid(ticks, ticks, ticks, indexing="ij")).reshape(3, -1)  # [3, points]
    distance = shape(*grid)
    near = distance < ticks[1] - ticks[0]  # even a part that is thinner than the grid is near some of its points
    points = grid[:, near] - _gradient(shape, grid[:, near]) * np.maximum(distance[near], 0)  # [3, near]
    low, high = points.min(axis=1), points.max(axis=1)
    centre = (low + high) / 2  # [3]
    radius = float(np.sqrt(((points - centre[:, None]) ** 2).sum(axis=0)).max())
    x, y, z = centre.tolist()
    return Solid(shape, (x, y, z), radius, float(low[2]))


def _gradient(shape: Shape, points: Array) -> Array:
    """In which direction distances grow, at points ``[3, P]``."""
    step = np.float32(0.01)
    sides = np.eye(3, dtype=np.float32)[:, :, None] * step  # [axis, 3, 1]
    return np.stack([shape(*(points + side)) - shape(*(points - side)) for side in sides]) / (2 * step)
