"""Signed distance functions: solids as functions of points, and ways to join them.

Everything is NumPy float32 with one array for each coordinate. NumPy and not torch, because a render is hundreds of
thousands of small operations, and for each of them torch may wake a team of threads, which costs more than the work.

Distances are exact outside boxes, cylinders and capsules of one radius, and never too long elsewhere (but for a little
in smoothly joined or tapered parts; the march takes slightly short steps for that). Inside, only the sign counts.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]  # float32 throughout, which the types of NumPy do not follow
Shape: TypeAlias = Callable[[Array, Array, Array], Array]  # x, y, z: [P] each -> distances [P]
Point: TypeAlias = tuple[float, float, float]

_ZEROS = np.zeros(1 << 18, dtype=np.float32)
_TINY = np.float32(1e-9)  # keeps a division from 0 / 0


def positive(values: Array) -> Array:
    """``max(values, 0)``: NumPy is three times as fast with an array of zeros as with the number."""
    if values.size > _ZEROS.size:
        return np.maximum(values, np.float32(0))
    return np.maximum(values, _ZEROS[: values.size])


def sum_of(terms: Iterable[Array]) -> Array:
    """The sum of new arrays, in the memory of the first."""
    remaining = iter(terms)
    total = next(remaining)
    for term in remaining:
        total += term
    return total


def length(*coordinates: Array) -> Array:
    """Euclidean length of vectors given by their coordinates ``[P]``."""
    total = sum_of(coordinate * coordinate for coordinate in coordinates)
    return np.sqrt(total, out=total)


def ellipsoid(centre: Point, radii: Point) -> Shape:
    """An ellipsoid with its axes along the coordinates; the distance is a lower bound, good near the surface."""
    (cx, cy, cz), (rx, ry, rz) = centre, radii

    def distance(x: Array, y: Array, z: Array) -> Array:
        ux, uy, uz = (x - cx) * (1 / rx), (y - cy) * (1 / ry), (z - cz) * (1 / rz)
        level = length(ux, uy, uz)
        slope = length(ux * (1 / rx), uy * (1 / ry), uz * (1 / rz))
        slope += _TINY
        return level * (level - 1.0) / slope

    return distance


def box(centre: Point, half: Point, rounding: float = 0.02) -> Shape:
    """A box of half side lengths ``half``, its edges rounded within them (which spares a term for the inside)."""
    (cx, cy, cz), (hx, hy, hz) = centre, (size - rounding for size in half)

    def distance(x: Array, y: Array, z: Array) -> Array:
        outside = [positive(np.abs(u - c) - h) for u, c, h in ((x, cx, hx), (y, cy, hy), (z, cz, hz))]
        return length(*outside) - rounding

    return distance


def cylinder(centre: Point, radius: float, half: float, axis: int, rounding: float = 0.02) -> Shape:
    """A cylinder of half length ``half`` along an axis (0 is x), its rims rounded."""

    def distance(*point: Array) -> Array:
        along, *across = (point[i] - centre[i] for i in (axis, (axis + 1) % 3, (axis + 2) % 3))
        beside = positive(length(*across) - (radius - rounding))
        beyond = positive(np.abs(along) - (half - rounding))
        return length(beside, beyond) - rounding

    return distance


def capsule(start: Point, end: Point, radius: float, end_radius: float | None = None) -> Shape:
    """A rod with round ends; with a second radius it tapers."""
    span = [e - s for s, e in zip(start, end, strict=True)]
    square = sum(s * s for s in span)
    growth = 0.0 if end_radius is None else end_radius - radius

    def distance(*point: Array) -> Array:
        offset = [u - a for u, a in zip(point, start, strict=True)]
        part = sum_of(o * (s / square) for o, s in zip(offset, span, strict=True) if s)
        part = 1.0 - positive(1.0 - positive(part))  # clamped to 0 .. 1 along the rod
        apart = length(*(o - part * s if s else o for o, s in zip(offset, span, strict=True)))
        return apart - (radius + growth * part if growth else radius)

    return distance


def blade(
    root: Point,
    span: float,
    chords: tuple[float, float],
    sweep: float,
    thickness: float,
    rise: float = 0.0,
    rounding: float | None = None,
) -> Shape:
    """Half a wing: a plate from the root along +y, from one chord (size in x) to another, its tip moved back by sweep.

    ``rise`` lifts the tip. The plate is a sheared box, so distances shrink by how much it is sheared.
    """
    rx, ry, rz = root
    rounding = thickness / 2 if rounding is None else rounding
    half_root, half_tip = (chord / 2 - rounding for chord in chords)
    back, narrow, lift = sweep / span, (half_root - half_tip) / span, rise / span
    shrink = 1 / math.sqrt(1 + (abs(back) + abs(narrow)) ** 2 + lift**2)

    def distance(x: Array, y: Array, z: Array) -> Array:
        out = y - ry
        beside = positive(np.abs(x - rx + out * back) + out * narrow - half_root)
        beyond = positive(np.abs(out - span / 2) - (span / 2 - rounding))
        above = positive(np.abs(z - rz - out * lift) - (thickness / 2 - rounding))
        return (length(beside, beyond, above) - rounding) * shrink

    return distance


def upright(shape: Shape) -> Shape:
    """A shape with y and z exchanged: a blade becomes a fin, or a tapering block."""
    return lambda x, y, z: shape(x, z, y)


def mirrored(*shapes: Shape, x: bool = False, y: bool = True) -> Shape:
    """The union of shapes and their mirror images, for the price of one: give the parts at positive coordinates."""
    joined = union(*shapes)
    return lambda px, py, pz: joined(np.abs(px) if x else px, np.abs(py) if y else py, pz)


def union(*shapes: Shape) -> Shape:
    def distance(x: Array, y: Array, z: Array) -> Array:
        nearest = shapes[0](x, y, z)
        for shape in shapes[1:]:
            nearest = np.minimum(nearest, shape(x, y, z))
        return nearest

    return distance


def blend(width: float, *shapes: Shape) -> Shape:
    """A union whose joints are filled smoothly where two parts are nearer to each other than ``width``."""

    def distance(x: Array, y: Array, z: Array) -> Array:
        nearest = shapes[0](x, y, z)
        for shape in shapes[1:]:
            other = shape(x, y, z)
            overlap = positive(width - np.abs(nearest - other))
            nearest = np.minimum(nearest, other)
            nearest -= overlap * overlap * (1 / (4 * width))
        return nearest

    return distance
