"""Animals on four legs, and people. Both face +x and stand about z = 0."""

import math

from torchcaps.data.turntable.primitives import Point, Shape, blend, box, capsule, cylinder, ellipsoid, mirrored, union
from torchcaps.data.turntable.proportions import Draw


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
