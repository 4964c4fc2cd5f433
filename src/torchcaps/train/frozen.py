"""Training that leaves the body of a network as it is."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from torchcaps.train.module import TrainingModule


class FrozenBody(Callback):
    """The body's weights do not train, and its batch norm uses the statistics that it has."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._train_body(pl_module, False)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, TrainingModule)
        network = pl_module.network
        for name, module in network.named_modules():  # at each batch: after a validation all of it is in training mode
            if isinstance(module, nn.BatchNorm2d) and network.is_body(name):
                module.eval()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._train_body(pl_module, True)

    @staticmethod
    def _train_body(module: LightningModule, trains: bool) -> None:
        assert isinstance(module, TrainingModule)
        for name, parameter in module.network.named_parameters():
            if module.network.is_body(name):
                parameter.requires_grad_(trains)
