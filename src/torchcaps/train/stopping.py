"""Early stopping: a run ends where its validation error no longer falls."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console

from torchcaps.train.metrics import Metrics
from torchcaps.train.module import TrainingModule


class Patience(Callback):
    """Stops after so many epochs without a lower validation error; what it waits for belongs to the checkpoint.

    Comes after the metrics, which know the error, and before the checkpoints in the trainer's list.
    """

    def __init__(self, epochs: int, metrics: Metrics, console: Console) -> None:
        self.epochs, self.metrics, self.console = epochs, metrics, console
        self.best: float | None = None
        self.waited = 0  # epochs since the best

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        if trainer.global_step == pl_module.cycle_start:  # a run that begins, or begins to be extended
            self.waited = 0
        # One that had stopped before does not go on when it is resumed.
        trainer.should_stop = trainer.should_stop or self.waited >= self.epochs

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        error = self.metrics.validation_error
        if error is None:
            return
        is_lower = self.best is None or error < self.best
        self.best, self.waited = (error, 0) if is_lower else (self.best, self.waited + 1)
        trainer.should_stop = trainer.should_stop or self.waited >= self.epochs

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.waited >= self.epochs:  # said now, after the line of the last epoch
            line = f"no lower validation error in {self.waited} epochs: stopped after epoch {trainer.current_epoch}"
            self.console.print(line, highlight=False, soft_wrap=True)
