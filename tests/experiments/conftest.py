"""Results without runs, and runs without training."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.cells import Run
from experiments.results import Places
from fake_results import Trainings
from torchcaps.train import Recipe

MakeRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def places() -> Places:
    return Places(Path("experiments/results"), Path("runs"))


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=200)


@pytest.fixture
def make_run() -> MakeRun:
    """A run without a decoder, on the built-in set."""

    def make(name: str, place: str = "short", **changes: Any) -> Run:
        fields = {"model": "cnn32", "loss": "cross-entropy", "reconstruction": 0.0, "validation": "none", **changes}
        return Run(place=place, name=name, recipe=Recipe.of(name=name, **fields))

    return make


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    """Stands in for training."""
    fake = Trainings()
    monkeypatch.setattr("experiments.queue.train", fake)
    monkeypatch.setattr("experiments.record.errors_by_object", lambda folder, recipe, part: {})
    return fake
