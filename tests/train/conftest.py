"""Two classes of 16x16 images in a folder, and a run that nothing interrupted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.train import Recipe, train
from train.tiny_runs import tiny


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


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded folders are not kept in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHCAPS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def recipe(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Three epochs of four steps, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tiny(images)


@pytest.fixture(scope="session")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not interrupted; not to be changed."""
    finished = train(tiny(images), output=tmp_path_factory.mktemp("whole"))
    assert finished is not None
    return finished.folder
