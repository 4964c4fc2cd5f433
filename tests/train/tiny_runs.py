"""Tiny runs, ways to cut them short, and what they leave."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from torchcaps.runs.metrics import read_rows
from torchcaps.train import Recipe, checkpoints
from torchcaps.train.checkpoints import Interrupted

SCRIPT = Path(sys.executable).with_name("torchcaps")


def tiny(images: Path) -> Recipe:
    """Three epochs of four steps."""
    return Recipe.of(
        name="tiny",
        data=str(images),
        size=16,
        first_channels=16,
        residual=False,
        conv_init="torch",
        transform_std=0.5,
        epochs=3,
        batch_size=8,
        rate=3e-3,
        schedule="one-cycle",
        checkpoint_every=3,
    )


def tiny_fields(images: Path, **changes: Any) -> list[str]:
    """The like on the command line; without a decoder, hence with small checkpoints."""
    fields = {"size": 16, "first-channels": 16, "batch-size": 8, "epochs": 3, "rate": 3e-3, "reconstruction": 0}
    pairs = {"data": images, **fields, **changes}
    return ["--no-residual", *(word for name, value in pairs.items() for word in (f"--{name}", str(value)))]


def start(*arguments: str | Path, folder: Path) -> subprocess.Popen[str]:
    """``torchcaps`` in a process of its own, with one thread."""
    return subprocess.Popen(
        [SCRIPT, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process wrote, once it is at its end."""
    try:
        return process.communicate(timeout=300)
    finally:
        process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Wait until a line that begins with the words is on a process's output."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if line.startswith(words):
            return
    raise AssertionError(f"the process ended without {words!r}: {process.stderr.read()}")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def rows_without_times(folder: Path) -> list[dict[str, float | None]]:
    rows = read_rows(folder / "metrics.csv")
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "images_per_second")} for row in rows
    ]


class PowerCutError(Exception):
    """The process is gone: nothing is saved any more."""


@contextmanager
def interrupted(at: int, how: str) -> Iterator[None]:
    """The run inside stops behind its step ``at``: by a signal, or like a power cut."""
    original = checkpoints.Checkpoints.on_train_batch_end

    def on_train_batch_end(self: Any, trainer: Any, *arguments: Any) -> None:
        if trainer.global_step == at:
            if how == "power cut":
                raise PowerCutError
            signal.raise_signal(signal.Signals[how])
        original(self, trainer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints.Checkpoints, "on_train_batch_end", on_train_batch_end)
        with pytest.raises(PowerCutError if how == "power cut" else Interrupted):
            yield
