"""Light: the six lightings, how much of each reaches a point, and what a surface sends to the camera."""

import math
from dataclasses import dataclass

import numpy as np

from torchcaps.data.turntable.camera import Vector
from torchcaps.data.turntable.march import Points, Rays, sphere_span
from torchcaps.data.turntable.objects import Solid
from torchcaps.data.turntable.shapes import Array, length, positive


@dataclass(frozen=True)
class Lighting:
    """One lamp far away, and light from all around."""

    direction: Vector  # toward the lamp, in the room
    lamp: float
    around: float


def _lighting(bearing: float, height: float, lamp: float, around: float) -> Lighting:
    """A lamp ``bearing`` degrees to the right of the cameras and ``height`` degrees up."""
    turn, rise = math.radians(bearing), math.radians(height)
    level = math.cos(rise)
    return Lighting(np.array([level * math.sin(turn), -level * math.cos(turn), math.sin(rise)]), lamp, around)


LIGHTINGS = (
    _lighting(-70, 45, 0.85, 0.35),
    _lighting(70, 45, 0.85, 0.35),
    _lighting(-20, 60, 0.6, 0.3),
    _lighting(-140, 40, 0.9, 0.4),
    _lighting(140, 50, 0.75, 0.25),
    _lighting(30, 75, 0.35, 0.6),
)


def normals(solid: Solid, points: Points, step: float) -> Points:
    """Unit normals ``[P]`` of the surface at points on it, from distances at the corners of a small tetrahedron."""
    x, y, z = points
    total = [np.zeros_like(x) for _ in range(3)]
    for corner in ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)):
        distance = solid.shape(x + corner[0] * step, y + corner[1] * step, z + corner[2] * step)
        for axis in range(3):
            total[axis] += distance if corner[axis] > 0 else -distance
    size = length(*total) + np.float32(1e-9)
    return total[0] / size, total[1] / size, total[2] / size


def lamp_reaches(solid: Solid, rays: Rays, steps: int = 16, softness: float = 9.0) -> Array:
    """How much of the lamp is seen by the origins of rays toward it, 0 .. 1 ``[R]``.

    A walk along each ray; a near miss on the way is a half-shadow, the sharper the nearer it is to the origin.
    """
    light = np.ones_like(rays.origin[0])
    least = np.float32(solid.radius * 0.015)  # a step; shorter ones would never leave the surface
    start, end, meets = sphere_span(rays, solid, 0.05 * solid.radius)
    index = np.flatnonzero(meets & (end > 0))
    at, end, rays = np.maximum(start[index], least), end[index], rays.take(index)
    for _ in range(steps):
        distance = solid.shape(*rays.at(at))
        light[index] = np.minimum(light[index], positive(distance * np.float32(softness) / at))
        at = at + np.maximum(distance, least)
        on = np.flatnonzero((light[index] > 0.02) & (at < end))
        if not len(on):
            break
        rays, at, end, index = rays.take(on), at[on], end[on], index[on]
    return light * light * (3 - 2 * light)


def openness(solid: Solid, points: Points, normal: Points, reach: float) -> Array:
    """How open the surroundings of points are, 0 .. 1: the room that is left a little way out along the normal."""
    x, y, z = (p + n * np.float32(reach) for p, n in zip(points, normal, strict=True))
    room = np.minimum(solid.shape(x, y, z), np.maximum(z - solid.floor, 0) + np.float32(reach * 0.3))
    return np.minimum(np.maximum(room / np.float32(reach), 0), 1)
