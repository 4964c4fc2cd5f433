"""Tiny classifiers, and folders of tiny images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.classifier import Classifier
from torchcaps.data import Pipeline, Split

CLASSES = ("ant", "[b]ee[/b] :bug:", "cat")  # rich would take the second for markup


@pytest.fixture
def tiny() -> Callable[..., Classifier]:
    """A function that makes classifiers of 16x16 crops of images with a shorter side of 20."""

    def make(seed: int = 0, *, model: str = "hybrid32", resize: int | None = 20, **options: Any) -> Classifier:
        torch.manual_seed(seed)
        classes = options.pop("names", CLASSES)
        settings: dict[str, Any] = {
            "num_classes": len(classes),
            "image_size": 16,
            "first_channels": 16,
            "conv_init": "torch",
        }
        if model == "hybrid32":  # without training, EM routing tells images apart better than the others do
            settings |= {"routing": "em", "transform_std": 0.5}
        pipeline = Pipeline(crop=16, resize=resize)
        return Classifier(model, {**settings, **options}, pipeline, classes, {"seed": seed}).eval()

    return make


@pytest.fixture
def split() -> Split:
    """Seven grey images of 24x20, with all three classes."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (7, 1, 24, 20), dtype=torch.uint8, generator=generator)
    return Split(images, torch.tensor([0, 1, 2, 0, 1, 2, 2]))


def write_images(folder: Path, count: int, seed: int = 0, size: int = 24) -> None:
    """PNGs of noise."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for number in range(count):
        Image.fromarray(generator.integers(0, 256, (size, size), np.uint8)).save(folder / f"{number}.png")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images with a subfolder for each class, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for seed, name in enumerate(("ant", "bee", "cat")):
        write_images(tmp_path / "photos" / name, 5, seed)
    return tmp_path / "photos"
