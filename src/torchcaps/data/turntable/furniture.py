"""Chairs, facing +x."""

from torchcaps.data.turntable.primitives import Shape, box, capsule, mirrored, union
from torchcaps.data.turntable.proportions import Draw


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
