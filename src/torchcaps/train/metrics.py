"""``metrics.csv`` and TensorBoard: how a run goes, in rows that a resumed run continues."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from torchcaps.classifier import Evaluation
from torchcaps.runs.folder import METRICS
from torchcaps.runs.metrics import COLUMNS, Row, append, start_file
from torchcaps.train.module import TrainingModule
from torchcaps.types import Classified

EVERY = 10  # steps to a row
SUMS = ("images", "wrong", "output_loss", "reconstruction_loss")


class Metrics(Callback):
    """Gathers what the steps count into rows and writes them.

    A row every few steps holds the means since the row before, that of an epoch's end the means over the epoch. What
    was counted belongs to the checkpoint: a resumed run writes the rows of one that was not interrupted, but for times.
    """

    def __init__(
        self, folder: Path, *, training_error: bool = True, validate: Callable[[], Evaluation] | None = None
    ) -> None:
        """Without ``training_error`` it is left out: mixed images are of no one class.

        ``validate`` evaluates this process's part of the validation images, after each epoch.
        """
        self.path, self.has_training_error, self.validate = folder / METRICS, training_error, validate
        self.validation_error: float | None = None
        self.seconds = 0.0  # of training, former processes included
        self._since_row = dict.fromkeys(SUMS, 0.0)
        self._row_seconds = 0.0  # since the row before, without validation
        self._epoch = {**dict.fromkeys(SUMS, 0.0), "seconds": 0.0}  # of all processes
        self._epoch_is_over = False
        self._clock = self._batch_clock = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        return {
            "since_row": dict(self._since_row),
            "row_seconds": self._row_seconds,
            "epoch": dict(self._epoch),
            "epoch_is_over": self._epoch_is_over,
            "seconds": self._elapsed(),
            "validation": self.validation_error,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._since_row, self._epoch = dict(state_dict["since_row"]), dict(state_dict["epoch"])
        self._row_seconds, self._epoch_is_over = state_dict["row_seconds"], state_dict["epoch_is_over"]
        self.seconds, self.validation_error = state_dict["seconds"], state_dict["validation"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._clock = self._batch_clock = time.perf_counter()
        if trainer.is_global_zero:
            start_file(self.path, trainer.global_step)
        else:  # the first process alone goes on with what was counted before
            self._since_row = dict.fromkeys(SUMS, 0.0)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._batch_clock = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for name in SUMS:
            self._since_row[name] += outputs[name]
        now = time.perf_counter()
        self._row_seconds, self._batch_clock = self._row_seconds + now - self._batch_clock, now
        is_last = batch_idx + 1 >= trainer.num_training_batches  # its row waits for the validation
        if trainer.global_step % EVERY == 0 and not is_last:
            self._write_row(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        validation: Row = {}
        if self.validate is not None:
            found = self.validate()
            images, summed = len(found.label), output_loss(pl_module, found) * len(found.label)
            total = over_processes(trainer, {"wrong": found.wrong, "images": images, "loss": summed})
            self.validation_error = total["wrong"] / total["images"]
            validation = {"validation_error": self.validation_error, "validation_loss": total["loss"] / total["images"]}
            # for callbacks that monitor it, as Lightning's own do
            pl_module.log("validation_error", self.validation_error, logger=False)
        self._write_row(trainer, pl_module, ends_epoch=True, validation=validation)
        for logger in trainer.loggers:
            logger.save()  # on the disk, whatever happens next

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seconds, self._clock = self._elapsed(), time.perf_counter()

    def so_far(self) -> str:
        """The current epoch in words."""
        images = self._epoch["images"]
        if not images:
            return ""
        loss = (self._epoch["output_loss"] + self._epoch["reconstruction_loss"]) / images
        parts = [f"loss {loss:.3f}"]
        if self.has_training_error:
            parts.append(f"training error {100 * self._epoch['wrong'] / images:.1f} %")
        if self.validation_error is not None:
            parts.append(f"validation error {100 * self.validation_error:.1f} %")
        return ", ".join([*parts, f"{images / self._epoch['seconds']:.0f} images/s"])

    def _elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self._clock

    def _write_row(
        self, trainer: Trainer, module: LightningModule, *, ends_epoch: bool = False, validation: Row | None = None
    ) -> None:
        assert isinstance(module, TrainingModule)
        if self._epoch_is_over:
            self._epoch = dict.fromkeys(self._epoch, 0.0)
        total = {**over_processes(trainer, self._since_row), "seconds": self._row_seconds}
        for name, value in total.items():
            self._epoch[name] += value
        self._since_row, self._row_seconds = dict.fromkeys(SUMS, 0.0), 0.0
        self._epoch_is_over = ends_epoch
        if ends_epoch:
            total = self._epoch
        images, seconds = max(1.0, total["images"]), max(1e-9, total["seconds"])
        recipe = module.recipe
        row: Row = dict.fromkeys(COLUMNS) | {
            "step": trainer.global_step,
            "epoch": trainer.global_step / module.steps_per_epoch,
            "seconds": self._elapsed(),
            "images_per_second": total["images"] / seconds,
            "rate": trainer.optimizers[0].param_groups[0]["lr"],
            "margin": module.margin if recipe.optimisation.loss == "spread" else None,
            "loss": (total["output_loss"] + total["reconstruction_loss"]) / images,
            "output_loss": total["output_loss"] / images,
            "reconstruction_loss": total["reconstruction_loss"] / images if recipe.has_decoder else None,
            "training_error": total["wrong"] / images if self.has_training_error else None,
            **(validation or {}),
        }
        if trainer.is_global_zero:
            append(self.path, row)
        known = {name: value for name, value in row.items() if value is not None and name != "step"}
        for logger in trainer.loggers:
            logger.log_metrics(known, trainer.global_step)


def output_loss(module: LightningModule, found: Evaluation) -> float:
    """The recipe's loss on the activations of an evaluation, with the present margin: a mean over its images."""
    assert isinstance(module, TrainingModule)
    # no loss looks at the poses; and softmax's activations give the cross entropy of their logits
    poses = found.activation.new_empty(*found.activation.shape, 0)
    return module.output_loss(Classified(poses, found.activation), found.label).item()


def over_processes(trainer: Trainer, sums: dict[str, float]) -> dict[str, float]:
    """The sums of all processes together."""
    if trainer.world_size == 1:
        return sums
    values = torch.tensor(list(sums.values()), dtype=torch.float64, device=trainer.strategy.root_device)
    return dict(zip(sums, trainer.strategy.reduce(values, reduce_op="sum").tolist(), strict=True))
