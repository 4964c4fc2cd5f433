"""What the user sees of a run: a bar on a terminal, a line for each epoch elsewhere."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from torchcaps.train.metrics import Metrics


class ProgressLine(Callback):
    """Steps done, loss, training and validation error, images per second and time left."""

    def __init__(self, metrics: Metrics, console: Console) -> None:
        self.metrics, self.console = metrics, console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._start, self._first_step = 0.0, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start, self._first_step = time.perf_counter(), trainer.global_step
        if not trainer.is_global_zero or not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        steps = self._steps(trainer)
        self._task = self._bar.add_task("", total=steps, completed=trainer.global_step, epoch=self._epoch(trainer))
        self._bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._update(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._update(trainer)
        if trainer.is_global_zero and self._bar is None:
            done = trainer.global_step - self._first_step
            left = (time.perf_counter() - self._start) / max(1, done) * (self._steps(trainer) - trainer.global_step)
            line = f"epoch {self._epoch(trainer)}: {self.metrics.so_far()}, {left:.0f} s left"
            self.console.print(line, highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _update(self, trainer: Trainer) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=trainer.global_step, epoch=self._epoch(trainer), description=self.metrics.so_far()
            )

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    @staticmethod
    def _epoch(trainer: Trainer) -> str:
        return f"{min(trainer.current_epoch + 1, trainer.max_epochs or 0)}/{trainer.max_epochs}"

    @staticmethod
    def _steps(trainer: Trainer) -> int:
        return int(trainer.num_training_batches) * (trainer.max_epochs or 0)
