"""The contact sheet."""

from pathlib import Path

import numpy as np
import pytest
import torch

from torchcaps.data.sheet import contact_sheet
from torchcaps.data.types import DataError, Split

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def levels(channels: int = 1, size: int = 32) -> Split:
    """Three classes of grey: 40, 80 and 120; twelve, twelve and two images."""
    labels = torch.tensor([0, 1] * 12 + [2] * 2)
    images = (40 * (labels + 1)).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, channels, size, size).clone()
    return Split(images, labels)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_row_for_each_class(tmp_path: Path, channels: int) -> None:
    path = contact_sheet(
        levels(channels), ("cat", "a very long name of a class, much longer than fits", "犬"), tmp_path / "s.png"
    )
    with Image.open(path) as image:
        assert image.format == "PNG"
        pixels = np.array(image)
    for row, (level, count) in enumerate([(40, 10), (80, 10), (120, 2)]):
        line = pixels[4 + 68 * row + 5, :, 0]  # above the text
        assert (line == level).sum() == 64 * count
        assert (pixels[4 + 68 * row : 68 * (row + 1), :150] < 100).any(), "the name is written"
    assert pixels.shape[0] == 4 + 3 * 68


def test_large_images_keep_their_size(tmp_path: Path) -> None:
    with Image.open(contact_sheet(levels(size=96), ("a", "b", "c"), tmp_path / "s.png", per_class=3)) as image:
        assert image.size[1] == 4 + 3 * 100


def test_same_seed_same_sheet(tmp_path: Path) -> None:
    first, again = (
        contact_sheet(levels(), ("a", "b", "c"), tmp_path / name).read_bytes() for name in ("1.png", "2.png")
    )
    assert first == again


def test_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        contact_sheet(levels(), ("a", "b", "c"), tmp_path / "file" / "s.png")
    with pytest.raises(ValueError, match="per_class is 0"):
        contact_sheet(levels(), ("a", "b", "c"), tmp_path / "s.png", per_class=0)
