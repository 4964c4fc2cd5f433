"""Sphere tracing: walk along rays by the distance to the nearest surface, in two passes.

First one ray for each cell of 4 x 4 pixels, as a cone that is as wide as the cell: it stops where the cell might touch
the object, and most cells do not. Then a ray for each pixel of the other cells, from where its cell's cone stopped.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.camera import IMAGE_SIZE, PIXEL, Camera
from torchcaps.data.turntable.objects import Solid
from torchcaps.data.turntable.shapes import Array, length, positive, sum_of

Index: TypeAlias = NDArray[np.intp]
Points: TypeAlias = tuple[Array, Array, Array]  # x, y, z: [P] each

CELL = 4
CAREFUL = 0.9  # part of a distance that is walked, as blended and tapered parts are slightly nearer than they say
TOUCH = 0.15  # pixels from a surface that count as on it


@dataclass(frozen=True)
class Rays:
    """Rays ``[R]`` from several cameras."""

    image: Index  # which camera
    origin: Points
    direction: Points  # of length 1

    def at(self, distance: Array) -> Points:
        """The points ``[R]`` at distances along the rays."""
        x, y, z = (o + d * distance for o, d in zip(self.origin, self.direction, strict=True))
        return x, y, z

    def take(self, index: Index) -> "Rays":
        x, y, z = (values[index] for values in self.origin)
        u, v, w = (values[index] for values in self.direction)
        return Rays(self.image[index], (x, y, z), (u, v, w))


def rays_of(cameras: list[Camera], image: Index, column: Array, row: Array) -> Rays:
    """The rays ``[R]`` through places in the pictures, in pixels from the left and upper edges."""
    across = (column - IMAGE_SIZE / 2) * np.float32(PIXEL)
    down = (row - IMAGE_SIZE / 2) * np.float32(PIXEL)
    scale = 1 / np.sqrt(1 + across * across + down * down)
    frames = np.array([[c.eye, c.right, c.up, c.forward] for c in cameras], dtype=np.float32).T  # [3, 4, images]
    eye, right, up, forward = np.take(frames, image, axis=2).transpose(1, 0, 2)  # [3, R] each
    direction = (forward + right * across - up * down) * scale
    return Rays(image, (eye[0], eye[1], eye[2]), (direction[0], direction[1], direction[2]))


def ground_distance(rays: Rays, solid: Solid) -> Array:
    """How far the ground is along each ray ``[R]``; the cameras always look down."""
    return (solid.floor - rays.origin[2]) / rays.direction[2]


def sphere_span(rays: Rays, solid: Solid, margin: Array | float = 0.0) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Where rays enter and leave the sphere around a solid, and whether they meet it at all ``[R]``."""
    offset = [o - c for o, c in zip(rays.origin, solid.centre, strict=True)]
    middle = -sum_of(o * d for o, d in zip(offset, rays.direction, strict=True))
    inside = (solid.radius + margin) ** 2 - (sum_of(o * o for o in offset) - middle * middle)
    half = np.sqrt(positive(inside))
    return middle - half, middle + half, inside > 0


@dataclass(frozen=True)
class Hits:
    """Pixels that show the object, wholly or in part."""

    rays: Rays
    pixel: Index  # position in the flattened pictures
    distance: Array
    coverage: Array  # 1, or less at the outline


def find_surface(solid: Solid, cameras: list[Camera]) -> Hits:
    """What the cameras see of a solid; they are given in the solid's own frame."""
    cells, start = _cells_near(solid, cameras)
    side = IMAGE_SIZE // CELL
    image, place = np.divmod(np.repeat(cells, CELL * CELL), side * side)
    within = np.tile(np.arange(CELL * CELL), len(cells))
    row = place // side * CELL + within // CELL
    column = place % side * CELL + within % CELL
    rays = rays_of(cameras, image, column.astype(np.float32) + 0.5, row.astype(np.float32) + 0.5)
    start = np.repeat(start, CELL * CELL)
    end = np.minimum(sphere_span(rays, solid)[1], ground_distance(rays, solid))
    distance, nearest = _walk(solid, rays, start, end)
    coverage = np.where(nearest < TOUCH, 1.0, np.maximum(0.75 - nearest, 0.0)).astype(np.float32)
    seen = np.flatnonzero(coverage)
    pixel = (image * IMAGE_SIZE + row) * IMAGE_SIZE + column
    return Hits(rays.take(seen), pixel[seen], distance[seen], coverage[seen])


def _cells_near(solid: Solid, cameras: list[Camera], steps: int = 20) -> tuple[Index, Array]:
    """The cells whose cones come near the object, and how far each is empty."""
    side = IMAGE_SIZE // CELL
    image, place = np.divmod(np.arange(len(cameras) * side * side), side * side)
    row, column = np.divmod(place, side)
    middle = np.float32(0.5)
    rays = rays_of(
        cameras, image, (column.astype(np.float32) + middle) * CELL, (row.astype(np.float32) + middle) * CELL
    )
    width = np.float32(PIXEL * (CELL / 2 + 0.5) * 1.5)  # from the cone's axis to a corner pixel's soft edge, at 1
    far = length(*(o - c for o, c in zip(rays.origin, solid.centre, strict=True))) + np.float32(solid.radius)
    start, end, meets = sphere_span(rays, solid, width * far)
    index = np.flatnonzero(meets)
    rays, at = rays.take(index), start[index]
    end = np.minimum(end[index], ground_distance(rays, solid) * np.float32(1.05))
    found: list[tuple[Index, Array]] = []
    for step in range(steps):
        distance = solid.shape(*rays.at(at)) * np.float32(CAREFUL)
        room = distance - width * at
        near = room < 0.02 if step < steps - 1 else room < np.inf
        found.append((index[near], at[near]))
        at = at + np.maximum(room, np.float32(0.01))
        on = np.flatnonzero(~near & (at < end))
        rays, at, end, index = rays.take(on), at[on], end[on], index[on]
    cells, starts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return cells, starts


def _walk(solid: Solid, rays: Rays, start: Array, end: Array, steps: int = 32) -> tuple[Array, Array]:
    """Where each ray ``[R]`` comes nearest to the surface, and how near, in pixels."""
    best, nearest = start.copy(), np.full_like(start, np.inf)
    index = np.arange(len(start))
    at = start
    for step in range(steps):
        distance = solid.shape(*rays.at(at))
        apart = distance / (at * np.float32(PIXEL))
        better = apart < nearest[index] if step else np.ones(len(at), dtype=np.bool_)
        changed = index[better]
        nearest[changed], best[changed] = apart[better], at[better]
        at = at + distance * np.float32(CAREFUL)
        on = np.flatnonzero((apart > TOUCH) & (at < end))
        if not len(on):
            break
        rays, at, end, index = rays.take(on), at[on], end[on], index[on]
    return best, nearest
