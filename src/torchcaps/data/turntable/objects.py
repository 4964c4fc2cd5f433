"""The toys of turntable: how each kind is put together from shapes, with proportions of its own for each instance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.shapes import (
    Array,
    Point,
    Shape,
    blade,
    blend,
    box,
    capsule,
    cylinder,
    ellipsoid,
    mirrored,
    union,
    upright,
)

Draw: TypeAlias = Callable[[float, float], float]  # lowest, highest -> a proportion of this instance

TRAIN_INSTANCES = (4, 6, 7, 8, 9)  # as in smallNORB
TEST_INSTANCES = (0, 1, 2, 3, 5)

_MOST = 32  # proportions of one category


def proportions(seed: int, category: int, instance: int) -> Draw:
    """A function that draws this instance's proportions, one per call, always in the same order.

    The five instances of a split share out each range: one has its proportion in the lowest fifth, one in the next, and
    so on, in an order of its own for each proportion. So five instances cover a category about as well under every
    seed, and those of the other split still lie between them.
    """
    group = TRAIN_INSTANCES if instance in TRAIN_INSTANCES else TEST_INSTANCES
    random = np.random.default_rng([seed, category, group is TEST_INSTANCES, 1])
    order: NDArray[np.int64] = random.permuted(np.tile(np.arange(len(group)), (_MOST, 1)), axis=1)  # [proportion, 5]
    shares = (order + random.random(order.shape)) / len(group)  # [proportion, 5], in 0 .. 1
    own = iter(shares[:, group.index(instance)].tolist())
    return lambda lowest, highest: lowest + (highest - lowest) * float(next(own))


def chair(draw: Draw) -> Shape:
    """From bar stool to bench: the back a panel or slats, legs straight or splayed, some with arms."""
    depth, width, seat = draw(0.32, 0.48), draw(0.32, 0.62), draw(0.45, 0.95)
    back, lean, solid = draw(0.45, 0.95), draw(0.0, 0.2), draw(-1, 1)
    leg, splay, plank = draw(0.04, 0.075), draw(0.0, 0.12), draw(0.04, 0.08)
    arms = draw(-1, 1)

    foot = (depth - leg + splay, width - leg + splay, leg)
    parts = [
        box((0.0, 0.0, seat), (depth, width, plank), 0.03),
        mirrored(capsule((depth - leg, width - leg, seat), foot, leg * 1.1, leg * 0.9), x=True),
    ]
    rear, top = -depth + leg, seat + back
    post = capsule((rear, width - leg, seat), (rear - lean, width - leg, top), leg)
    rails = 3 if solid < 0 else 1
    for number in range(rails):
        share = (number + 0.75) / rails if rails > 1 else 0.68
        rail_height = 0.11 if rails > 1 else back * 0.28
        parts.append(box((rear - lean * share, 0.0, seat + back * share), (0.04, width - leg, rail_height), 0.03))
    sides = [post]
    if arms > 0.1:
        sides.append(capsule((rear, width - leg, seat + 0.34), (depth - leg, width - leg, seat + 0.34), 0.055))
        sides.append(capsule((depth - leg, width - leg, seat + 0.34), (depth - leg, width - leg, seat), 0.05))
    return union(*parts, mirrored(*sides))


def toward(start: Point, size: float, angle: float, side: float = 0.0) -> Point:
    """The point at a distance from another: ``angle`` degrees up from +x, then ``side`` in y."""
    turn = math.radians(angle)
    return (start[0] + size * math.cos(turn), start[1] + side, start[2] + size * math.sin(turn))


def animal(draw: Draw) -> Shape:
    """From dachshund to giraffe."""
    half, girth = draw(0.42, 0.75), draw(0.20, 0.32)
    leg, leg_width = draw(0.35, 0.85), draw(0.065, 0.11)
    neck, neck_angle = draw(0.15, 0.65), draw(35, 75)
    head, snout = draw(0.15, 0.21), draw(0.12, 0.32)
    ears, tail, tail_angle = draw(0.08, 0.24), draw(0.25, 0.6), draw(-60, 55)

    back = leg + girth
    hip, side = half * 0.85, girth * 0.62
    throat = (half * 0.85, 0.0, back + girth * 0.25)
    skull = toward(throat, neck + head, neck_angle)
    rump = (-half - girth * 0.3, 0.0, back + girth * 0.4)
    trunk = blend(
        0.12,
        capsule((-half, 0.0, back), (half, 0.0, back), girth * 0.95, girth),
        mirrored(capsule((hip, side, leg), (hip * 1.05, side, leg_width), leg_width * 1.25, leg_width), x=True),
        capsule(throat, skull, girth * 0.55, head * 0.7),
    )
    face = blend(
        0.06,
        ellipsoid(skull, (head * 1.1, head * 0.85, head)),
        capsule(skull, toward(skull, snout + head * 0.6, -20), head * 0.6, head * 0.42),
        mirrored(capsule((skull[0] - head * 0.3, head * 0.5, skull[2] + head * 0.6),
                         (skull[0] - head * 0.5, head * 0.8, skull[2] + head * 0.7 + ears), 0.055, 0.03)),
    )  # fmt: skip
    return union(blend(0.05, trunk, face), capsule(rump, toward(rump, tail, 180 - tail_angle), 0.05, 0.035))


def person(draw: Draw) -> Shape:
    """Standing or striding, arms anywhere from hanging to raised, thin or stout, some with a hat."""
    leg, torso, girth = draw(0.75, 1.05), draw(0.5, 0.7), draw(0.13, 0.23)
    shoulder, limb = draw(0.2, 0.3), draw(0.07, 0.1)
    spread, stride = draw(0.08, 0.26), draw(0.0, 0.28)
    arm, left_raise, right_raise = draw(0.55, 0.7), draw(-80, 60), draw(-80, 60)
    head, hat = draw(0.14, 0.2), draw(-0.06, 0.1)

    neck = leg + torso
    parts = [capsule((0.0, 0.0, leg + 0.05), (0.0, 0.0, neck - 0.08), girth, girth * 1.05)]
    parts.append(mirrored(capsule((0.0, 0.0, neck - 0.06), (0.0, shoulder, neck - 0.08), limb * 1.1)))
    for sign, lift in ((1, left_raise), (-1, right_raise)):
        foot = (sign * stride, sign * spread, limb)
        parts.append(capsule((0.0, sign * girth * 0.5, leg), foot, limb * 1.4, limb))
        parts.append(capsule(foot, (foot[0] + 0.16, foot[1] * 1.1, limb * 0.9), limb * 0.9))
        reach, rise = math.cos(math.radians(lift)), math.sin(math.radians(lift))
        elbow = (0.0, sign * (shoulder + arm * 0.45 * reach), neck - 0.08 + arm * 0.45 * rise)
        hand = (arm * 0.35, elbow[1] + sign * arm * 0.3 * reach, elbow[2] + arm * 0.35 * rise)
        parts.append(capsule((0.0, sign * shoulder, neck - 0.08), elbow, limb, limb * 0.85))
        parts.append(capsule(elbow, hand, limb * 0.85, limb * 0.75))
    body = blend(0.06, *parts)
    top = neck + 0.06 + head
    skull = union(ellipsoid((0.02, 0.0, top), (head * 0.95, head * 0.85, head * 1.1)),
                  capsule((0.0, 0.0, neck - 0.05), (0.0, 0.0, top), head * 0.45))  # fmt: skip
    if hat > 0:  # two in three wear one
        skull = union(
            skull,
            cylinder((0.0, 0.0, top + head * 0.5), head * 1.1 + hat, 0.03, axis=2),
            cylinder((0.0, 0.0, top + head * 0.5 + 0.1), head * 0.85, 0.12, axis=2),
        )
    return union(body, skull, box((0.0, 0.0, leg), (girth * 0.8, girth * 1.05, 0.1), 0.07))


def airplane(draw: Draw) -> Shape:
    """From glider to jet: wings straight or swept, high or low, engines under them or a propeller in front."""
    half, girth = draw(0.75, 1.1), draw(0.11, 0.2)
    span, root, tip = draw(0.75, 1.25), draw(0.32, 0.55), draw(0.14, 0.3)
    sweep, rise, mount = draw(-0.05, 0.6), draw(0.0, 0.18), draw(-0.6, 0.8)
    place, tail_size, engine = draw(-0.05, 0.25), draw(0.3, 0.5), draw(-0.08, 0.1)

    height = 0.22 + girth
    wing_height = height + mount * girth
    stern = -half * 0.95
    fuselage = blend(
        0.1,
        ellipsoid((half * 0.25, 0.0, height), (half * 0.8, girth, girth * 1.05)),
        capsule((half * 0.2, 0.0, height), (stern, 0.0, height + girth * 0.4), girth * 0.95, girth * 0.4),
        ellipsoid((half * 0.45, 0.0, height + girth * 0.8), (0.2, girth * 0.6, girth * 0.6)),
    )
    pairs = [
        blade((place, 0.0, wing_height), span, (root, tip), sweep, 0.06, rise),
        blade((stern + 0.08, 0.0, height + girth * 0.4), tail_size, (0.28, 0.18), 0.1 + sweep * 0.3, 0.05),
        capsule((place, girth * 1.2, 0.05), (place, girth * 0.9, height), 0.05, 0.03),
    ]
    if engine > 0:  # over half have two engines, the others a propeller
        hang = wing_height - 0.07 + rise * 0.4
        front = place - sweep * 0.4
        pairs.append(capsule((front + 0.28, span * 0.4, hang), (front - 0.1, span * 0.4, hang), 0.06 + engine * 0.4))
        propeller = capsule((half * 0.9, 0.0, height), (half * 1.08, 0.0, height), 0.05)
    else:
        propeller = cylinder((half * 1.06, 0.0, height), 0.24, 0.03, axis=0)
    fin = upright(blade((stern + 0.05, height + girth * 0.4, 0.0), tail_size * 0.95, (0.32, 0.18), 0.2, 0.05))
    return union(fuselage, mirrored(*pairs), fin, propeller)


def car(draw: Draw) -> Shape:
    """Saloon, hatchback, van or pickup, by where the cabin sits and how long and high it is."""
    half, width, body = draw(0.85, 1.15), draw(0.38, 0.5), draw(0.13, 0.2)
    cabin, cabin_height, place = draw(0.4, 0.75), draw(0.22, 0.42), draw(-0.3, 0.12)
    slope, slant = draw(0.1, 0.35), draw(-0.05, 0.12)
    wheel, nose = draw(0.16, 0.23), draw(0.0, 0.1)

    floor = wheel + body * 0.6
    roof_chord = max(cabin * 2 - slope * 2, 0.4)
    middle = max(-half + cabin, place) if place < 0 else place
    return union(
        blend(
            0.04,
            box((0.0, 0.0, floor), (half, width, body), 0.07),
            box((-0.1, 0.0, floor + body * 0.6), (half * 0.85, width * 0.95, body * 0.6 + nose * 0.3), 0.06),
            upright(
                blade(
                    (middle, floor + body * 0.5, 0.0),
                    cabin_height + body * 0.5,
                    (cabin * 2, roof_chord),
                    slant,
                    width * 1.75,
                    rounding=0.05,
                )
            ),
        ),
        mirrored(cylinder((half * 0.62, width * 0.95, wheel), wheel, 0.09, axis=1, rounding=0.03), x=True),
    )


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
