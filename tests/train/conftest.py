"""Tiny runs: two classes of 16x16 images in a folder, a small hybrid network, four steps to an epoch."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.train import Recipe


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images: bright above, or bright on the left."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for name in ("above", "left"):
        (folder / name).mkdir()
        for number in range(24):
            pixels = random.integers(0, 100, (18, 18), dtype=np.uint8)
            pixels[(slice(0, 9), slice(None)) if name == "above" else (slice(None), slice(0, 9))] += 120
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def recipe(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Three epochs of four steps, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCAPS_CACHE", str(images.parent / "cache"))
    return tiny(images)


def tiny(images: Path) -> Recipe:
    return Recipe(
        name="tiny",
        data=str(images),
        size=16,
        first_channels=16,
        conv_init="torch",
        transform_std=0.5,
        epochs=3,
        batch_size=8,
        rate=3e-3,
        schedule="one-cycle",
        checkpoint_every=3,
    )
