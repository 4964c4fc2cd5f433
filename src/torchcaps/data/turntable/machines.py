"""Airplanes and cars, nose toward +x."""

from torchcaps.data.turntable.primitives import (
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
from torchcaps.data.turntable.proportions import Draw


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
