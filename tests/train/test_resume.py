"""A run that was interrupted ends as one that was not: bit for bit."""

import signal
from pathlib import Path
from typing import Any

import pytest

from torchcaps.train import Recipe, checkpoints, metrics, train
from torchcaps.train.checkpoints import Interrupted

STEPS = 12


class PowerCutError(Exception):
    """The process is gone: nothing is saved any more."""


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def rows_without_times(folder: Path) -> list[dict[str, float | None]]:
    rows = metrics.read_rows(folder / "metrics.csv")
    return [{name: value for name, value in row.items() if name not in ("seconds", "images_per_second")} for row in rows]


@pytest.fixture
def whole(recipe: Recipe) -> Path:
    finished = train(recipe, output=Path("whole"))
    assert finished is not None
    return finished.folder


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int, how: str) -> None:
    """Stop the next run behind its step ``at``: by a signal, or like a power cut."""
    original = checkpoints.Checkpoints.on_train_batch_end

    def on_train_batch_end(self: Any, trainer: Any, *arguments: Any) -> None:
        if trainer.global_step == at:
            if how == "power cut":
                raise PowerCutError
            signal.raise_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)
        original(self, trainer, *arguments)

    monkeypatch.setattr(checkpoints.Checkpoints, "on_train_batch_end", on_train_batch_end)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "power cut"])
@pytest.mark.parametrize("at", [1, 3, 4, 6, 8, 11, 12])
def test_interrupted_run_ends_with_the_same_weights_and_rows(
    recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch, how: str, at: int
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, at, how)
        with pytest.raises(PowerCutError if how == "power cut" else Interrupted):
            train(recipe, output=Path("cut"))
    assert not (Path("cut") / "model.safetensors").exists()

    train(recipe, resume=Path("cut"))

    assert weights(Path("cut")) == weights(whole)
    assert rows_without_times(Path("cut")) == rows_without_times(whole)
