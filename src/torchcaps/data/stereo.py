"""Which cameras of a set of stereo pairs are looked through."""

from typing import Literal

from torchcaps.data.types import Split

Camera = Literal["left", "right", "both", "each"]
"""One camera, both as two channels, or each as an image of its own."""
CAMERAS: dict[str, slice] = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2), "each": slice(0, 2)}


def looked_at(split: Split, camera: Camera) -> Split:
    """A split whose channels are those cameras; with ``"each"`` a pair becomes two images, left and right."""
    if camera != "each":
        return split
    factors = {name: values.repeat_interleave(2) for name, values in split.factors.items()}
    images = split.images.flatten(0, 1).unsqueeze(1)  # [N, 2, H, W] -> [2 N, 1, H, W], a view
    return Split(images, split.labels.repeat_interleave(2), factors)
