"""Checkpoints that are whole or not there, and runs that stop between two steps."""

import signal
import threading
import zipfile
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import CheckpointIO
from torch import nn

from torchcaps.data import BatchLoader
from torchcaps.data.writing import remove_leftovers, whole_file
from torchcaps.models.files import mismatch
from torchcaps.runs.folder import BEST, LAST, RunFolderError
from torchcaps.train.finite import check_weights
from torchcaps.train.metrics import Metrics
from torchcaps.train.module import TrainingModule

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The user, or the system, asked the run to stop; it did so after a checkpoint."""

    def __init__(self, number: int, step: int, folder: Path) -> None:
        super().__init__(f"stopped after step {step} by {signal.Signals(number).name}")
        self.exit_code, self.folder = 128 + number, folder


class WholeFiles(CheckpointIO):
    """Checkpoints under their name only when complete; read without running any code in them."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with whole_file(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # of its zip file, which hides that the disk is full
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from error
                raise

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint's values, or an error that says what is wrong with the file."""
    try:
        # torch.load looks at no checksum, and a damaged directory makes it return memory that nobody has written.
        with zipfile.ZipFile(path) as found, zipfile.ZipFile(checked := BytesIO(), "w") as copy:
            for name in found.namelist():
                copy.writestr(name, found.read(name))
        checked.seek(0)
        values = torch.load(checked, map_location=map_location, weights_only=True)
    except Exception as error:  # damaged files make both readers stumble in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunFolderError(f"{path} is damaged ({reason}): copy it again, or start the run again") from error
    if not isinstance(values, dict) or not {"state_dict", "global_step", "loops"} <= values.keys():
        raise RunFolderError(f"{path} is not a checkpoint of a training run")
    return values


def read_checkpoint_of(network: nn.Module, path: Path) -> dict[str, Any]:
    """A checkpoint's values, if its weights are those of this network."""
    values = read_checkpoint(path)
    expected = {f"network.{name}": value.shape for name, value in network.state_dict().items()}
    if problem := mismatch(expected, {name: value.shape for name, value in values["state_dict"].items()}):
        raise RunFolderError(f"{path} does not match the recipe's network: {problem}")
    return values


class Checkpoints(Callback):
    """Writes the last checkpoint every so many steps and after each epoch, and the best one on validation.

    The first Ctrl-C or SIGTERM finishes the current step, writes a checkpoint and stops; a second Ctrl-C stops at once.
    """

    def __init__(self, folder: Path, every: int, metrics: Metrics) -> None:
        """``metrics`` knows the validation error, and comes before this one in the trainer's list."""
        self.folder, self.every, self.metrics = folder, every, metrics
        self.best: float | None = None
        self._loader: BatchLoader | None = None
        self._position: dict[str, Any] | None = None
        self._signal = 0
        self._handlers: dict[int, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "loader": None if self._loader is None else self._loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self._position = state_dict["best"], state_dict["loader"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loader = trainer.train_dataloader
        assert isinstance(self._loader, BatchLoader)
        if self._position is not None:
            # Lightning does so too, but not from a checkpoint between two epochs.
            self._loader.load_state_dict(self._position)
        if trainer.is_global_zero:  # it holds the folder's lock
            for folder in (self.folder, (self.folder / LAST).parent):
                remove_leftovers(folder)
        if threading.current_thread() is threading.main_thread():  # others cannot have handlers
            for number in STOPPING:
                self._handlers[number] = signal.signal(number, self._ask_to_stop)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        if self._signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        self._signal = number

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # The last batch of an epoch is followed by validation, and then by on_train_epoch_end.
        is_last = batch_idx + 1 >= trainer.num_training_batches
        stop = self._agree_to_stop(trainer)
        if not is_last and (stop or trainer.global_step % self.every == 0):
            self._save(trainer, pl_module, LAST)
        if stop and not is_last:
            raise Interrupted(stop, trainer.global_step, self.folder)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        error = self.metrics.validation_error
        if error is not None and (self.best is None or error < self.best):
            self.best = error
            self._save(trainer, pl_module, BEST)
        self._save(trainer, pl_module, LAST)
        if stop := self._agree_to_stop(trainer):
            raise Interrupted(stop, trainer.global_step, self.folder)

    def _agree_to_stop(self, trainer: Trainer) -> int:
        """The signal that any of the processes got: they have to stop after the same step."""
        if trainer.world_size == 1:
            return self._signal
        asked = torch.tensor(self._signal, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(asked, reduce_op="max"))

    def _save(self, trainer: Trainer, module: LightningModule, name: str) -> None:
        assert isinstance(module, TrainingModule)
        check_weights(module.network, trainer.global_step)
        trainer.save_checkpoint(self.folder / name)
