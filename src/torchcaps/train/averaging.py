"""The mean of the weights over the last epochs of a run (stochastic weight averaging, Izmailov et al. 2018)."""

from itertools import islice
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim.swa_utils import update_bn

from torchcaps.data import BatchLoader
from torchcaps.train.module import TrainingModule

STATISTICS_BATCHES = 200  # over which batch norm's statistics are taken anew; fewer where an epoch has fewer


class MeanOfWeights(Callback):
    """Averages the weights that each step of the last epochs ends with, and after the last step puts the mean in place.

    Batch norm's statistics, which belonged to other weights, are then taken anew over batches that training has not
    seen: those of the epoch that would follow. All that comes before the checkpoint of the last epoch, and before its
    validation: both are of the mean. Lightning's own callback would put the mean into every checkpoint and validation.
    """

    def __init__(self, epochs: int, fresh: BatchLoader) -> None:
        """``epochs`` to average over; ``fresh`` makes training batches, whose images are not mixed."""
        self.epochs, self.fresh = epochs, fresh
        self.steps = 0
        self.mean: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps, self.mean = state_dict["steps"], state_dict["mean"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        if trainer.global_step == pl_module.cycle_start:  # what was averaged before belongs to a run that has ended
            self.steps, self.mean = 0, {}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        left = pl_module.recipe.optimisation.epochs * pl_module.steps_per_epoch - trainer.global_step
        if left < self.epochs * pl_module.steps_per_epoch:
            self._add(pl_module)
        if left == 0:
            self._put_in_place(pl_module)

    @torch.no_grad()
    def _add(self, module: TrainingModule) -> None:
        self.steps += 1
        for name, weight in module.network.named_parameters():
            if self.steps == 1:
                self.mean[name] = weight.clone()
            else:
                self.mean[name] = self.mean[name].to(weight.device).lerp_(weight, 1 / self.steps)

    def _put_in_place(self, module: TrainingModule) -> None:
        module.network.load_state_dict(self.mean, strict=False)
        if module.recipe.network.freeze:  # then all norms are in the body
            return
        self.fresh.set_epoch(module.recipe.optimisation.epochs)
        update_bn(islice(self.fresh, STATISTICS_BATCHES), module.network, module.device)
