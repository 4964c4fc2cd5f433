"""Pictures of a solid: the object in front, the ground with its shadow behind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.camera import DISTANCE, IMAGE_SIZE, PIXEL, Camera, Placement
from torchcaps.data.turntable.march import Hits, Index, Points, Rays, find_surface, ground_distance, rays_of
from torchcaps.data.turntable.objects import Solid
from torchcaps.data.turntable.shading import LIGHTINGS, lamp_reaches, normals, openness
from torchcaps.data.turntable.shapes import Array, length, positive, sum_of

GROUND = 0.8  # how much light the ground sends back


@dataclass(frozen=True)
class View:
    """One picture to take: a camera in the room, how the object stands there, the lighting, and the object's paint."""

    camera: Camera
    placement: Placement
    lighting: int
    paint: float


def render(solid: Solid, views: list[View]) -> NDArray[np.uint8]:
    """Pictures ``[V, 96, 96]`` of one solid."""
    cameras = [view.placement.to_object(view.camera) for view in views]
    lamps = np.array(
        [view.placement.direction_to_object(LIGHTINGS[view.lighting].direction) for view in views], dtype=np.float32
    )
    hits = find_surface(solid, cameras)
    picture = _ground(solid, views, cameras, lamps)
    colour = _object(solid, views, lamps, hits)
    picture[hits.pixel] += hits.coverage * (colour - picture[hits.pixel])
    blurred = _lens(picture.reshape(len(views), IMAGE_SIZE, IMAGE_SIZE))
    return np.asarray(np.rint(np.clip(blurred, 0, 1) * 255), dtype=np.uint8)


def _spread(values: Array, image: Index) -> Points:
    """A vector of each image ``[V, 3]`` for every ray: three arrays ``[R]``."""
    x, y, z = values.T[:, image]
    return x, y, z


def _dot(first: Points, second: Points) -> Array:
    return sum_of(f * s for f, s in zip(first, second, strict=True))


def _levels(views: list[View]) -> tuple[Array, Array]:
    lamp = np.array([LIGHTINGS[view.lighting].lamp for view in views], dtype=np.float32)
    around = np.array([LIGHTINGS[view.lighting].around for view in views], dtype=np.float32)
    return lamp, around  # [V] each


def _ground(solid: Solid, views: list[View], cameras: list[Camera], lamps: Array) -> Array:
    """The pictures without the object, flattened. Shadows are soft, so every second pixel each way is enough."""
    side = IMAGE_SIZE // 2
    image, place = np.divmod(np.arange(len(views) * side * side), side * side)
    row, column = np.divmod(place, side)
    rays = rays_of(cameras, image, column.astype(np.float32) * 2 + 1, row.astype(np.float32) * 2 + 1)
    points = rays.at(ground_distance(rays, solid))
    shadow = lamp_reaches(solid, Rays(image, points, _spread(lamps, image)))
    opening = np.ones_like(shadow)
    apart = (points[0] - solid.centre[0]) ** 2 + (points[1] - solid.centre[1]) ** 2
    near = np.flatnonzero(apart < (solid.radius * 1.3) ** 2)
    x, y, z = (p[near] for p in points)
    up = (np.zeros_like(x), np.zeros_like(x), np.ones_like(x))
    opening[near] = openness(solid, (x, y, z), up, 0.3 * solid.radius)
    lamp, around = _levels(views)
    level = (lamp * lamps[:, 2])[image] * shadow + around[image] * (0.35 + 0.65 * opening)
    return _enlarge(GROUND * level.reshape(len(views), side, side)).reshape(-1)


def _enlarge(pictures: Array) -> Array:
    """Twice the size ``[V, h, w] -> [V, 2h, 2w]``, in between linearly."""
    for axis in (1, 2):
        before, after = _neighbours(pictures, axis)
        pairs = np.stack([0.75 * pictures + 0.25 * before, 0.75 * pictures + 0.25 * after], axis=axis + 1)
        pictures = pairs.reshape([size * (1 + (axis == other)) for other, size in enumerate(pictures.shape)])
    return pictures


def _neighbours(pictures: Array, axis: int) -> tuple[Array, Array]:
    """The pictures moved by one along an axis, forward and back, with the edge repeated."""
    size = pictures.shape[axis]
    places = np.arange(size)
    before = np.take(pictures, np.maximum(places - 1, 0), axis=axis)
    after = np.take(pictures, np.minimum(places + 1, size - 1), axis=axis)
    return before, after


def _object(solid: Solid, views: list[View], lamps: Array, hits: Hits) -> Array:
    """What the object sends to the cameras ``[R]``."""
    image = hits.rays.image
    lamp, around = (values[image] for values in _levels(views))
    paint = np.array([view.paint for view in views], dtype=np.float32)[image]
    points = hits.rays.at(hits.distance)
    pixel = PIXEL * DISTANCE * solid.radius
    normal = normals(solid, points, 0.4 * pixel)
    toward = _spread(lamps, image)
    facing = positive(_dot(normal, toward))
    lit = np.flatnonzero(facing)
    x, y, z = (p + n * np.float32(0.6 * pixel) for p, n in zip(points, normal, strict=True))  # clear of the surface
    shadow = np.zeros_like(facing)
    shadow[lit] = lamp_reaches(solid, Rays(image, (x, y, z), toward).take(lit), softness=12.0)
    opening = openness(solid, points, normal, 0.15 * solid.radius)
    x, y, z = (t - d for t, d in zip(toward, hits.rays.direction, strict=True))
    shine = positive(_dot(normal, (x, y, z)) / length(x, y, z))
    for _ in range(4):
        shine *= shine  # the sixteenth power: a soft shine, as of painted wood
    sky = (0.65 + 0.35 * normal[2]) * (0.3 + 0.7 * opening)
    return np.asarray(paint * (lamp * facing * shadow + around * sky) + 0.25 * lamp * shine * shadow, dtype=np.float32)


def _lens(pictures: Array) -> Array:
    """A slight blur ``[V, 96, 96]``, as any lens has; it also softens the edges inside of the outline."""
    for axis in (1, 2):
        before, after = _neighbours(pictures, axis)
        pictures = 0.7 * pictures + 0.15 * (before + after)
    return pictures
