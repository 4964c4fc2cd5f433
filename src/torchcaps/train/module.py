"""What a step is."""

from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from torchcaps.data.mixing import MixedBatch
from torchcaps.data.pipeline import Batch
from torchcaps.functional.losses import (
    activation_cross_entropy,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
    weighted_mean,
)
from torchcaps.models.network import Network
from torchcaps.nn.routed import RoutedLayer
from torchcaps.train.finite import ADVICE, NotFiniteError, Place, not_finite
from torchcaps.train.recipe import Recipe
from torchcaps.train.schedule import rate_at
from torchcaps.types import Classified, Scores

# Small beside the first gradients below a stack of routing layers, which PyTorch's 1e-8 would damp.
ADAM_EPSILON = 1e-12


class Counts(TypedDict):
    """What a batch adds to the metrics: sums over its images."""

    loss: Tensor  # [], for the optimiser
    images: int
    wrong: int
    output_loss: float
    reconstruction_loss: float


MEAN_STEPS = 10


class TrainingModule(LightningModule):
    """A network with the recipe's loss, optimiser and schedule.

    Everything that changes over a run is a function of the step, so that a resumed run is the same run.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        network: Network,
        recipe: Recipe,
        steps_per_epoch: int,
        class_weights: Tensor | None = None,
        former_epochs: Sequence[int] = (),
    ) -> None:
        """``class_weights [classes]`` are factors on the loss of each image, by its class.

        ``former_epochs`` are the lengths at which the run was at an end before, and then extended.
        """
        super().__init__()
        self.network, self.recipe, self.steps_per_epoch = network, recipe, steps_per_epoch
        self.register_buffer("class_weights", class_weights, persistent=False)  # the recipe and the data have them
        self.first_epochs = former_epochs[0] if former_epochs else recipe.optimisation.epochs
        self.cycle_start = steps_per_epoch * (former_epochs[-1] if former_epochs else 0)
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        self.momenta = [(norm, norm.momentum) for norm in norms if norm.momentum is not None]

    @property
    def margin(self) -> float:
        """Of the spread loss, now."""
        return spread_margin(self.global_step, steps_per_epoch=self.steps_per_epoch, epochs=self.first_epochs)

    def rate_share(self, step: int) -> float:
        """Of the highest rate, at a step; an extended run has a new cycle over the epochs that were added."""
        settings = self.recipe.optimisation
        # Not asked of the trainer, which would then set its loaders up too early, and lose where they were.
        steps = settings.epochs * self.steps_per_epoch - self.cycle_start
        return rate_at(step - self.cycle_start, steps=steps, schedule=settings.schedule, warm_up=settings.warm_up)

    def on_train_start(self) -> None:
        scheduler: Any = self.lr_schedulers()
        for group, highest in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True):
            group["lr"] = highest * self.rate_share(self.global_step)  # a checkpoint has the rate of the cycle before

    def on_train_batch_start(self, batch: Batch | MixedBatch, batch_idx: int) -> None:
        """At first, running statistics of batch norms are the mean over the batches so far: runs may have few."""
        if self.global_step > MEAN_STEPS:  # to look at a counter would make a GPU wait in every step
            return
        for norm, momentum in self.momenta:
            seen = MEAN_STEPS if norm.num_batches_tracked is None else int(norm.num_batches_tracked)
            norm.momentum = momentum if seen >= MEAN_STEPS else max(momentum, 1 / (1 + seen))

    def on_train_end(self) -> None:
        for norm, momentum in self.momenta:
            norm.momentum = momentum

    def training_step(self, batch: Batch | MixedBatch, batch_idx: int) -> Counts:
        output = self.network(batch.image)
        losses = self.losses(output, batch)
        values = {name: loss.item() for name, loss in losses.items()}
        place = Place(step=self.global_step + 1, epoch=self.current_epoch + 1, batch=batch_idx + 1)
        self._agree_on_finite(values, batch.image, place)
        images = len(batch.label)
        return {
            "loss": torch.stack(list(losses.values())).sum(),
            "images": images,
            "wrong": int(
                (output.activation.argmax(1) != batch.label).sum()
            ),  # nobody asks of mixed images: see Metrics
            "output_loss": values["output_loss"] * images,
            "reconstruction_loss": values.get("reconstruction_loss", 0.0) * images,
        }

    def _agree_on_finite(self, losses: dict[str, float], image: Tensor, place: Place) -> None:
        """Raise in all processes where a loss is not finite in one: the others would wait for it."""
        problem = not_finite(losses, self.network, image)
        found = problem is not None
        if self.trainer.world_size > 1:
            found = self.trainer.strategy.reduce_boolean_decision(found, all=False)
        if found:
            what, culprit = problem or ("the loss of another process is not finite", "this one's is")
            raise NotFiniteError(f"{what} at {place}: {culprit}; {ADVICE}")

    def losses(self, output: Classified | Scores, batch: Batch | MixedBatch) -> dict[str, Tensor]:
        """The parts of the loss, each ``[]``."""
        if isinstance(batch, MixedBatch):
            first, second = (self.output_loss(output, label) for label in (batch.label, batch.other_label))
            return {"output_loss": batch.share * first + (1 - batch.share) * second}
        losses = {"output_loss": self.output_loss(output, batch.label)}
        if self.recipe.has_decoder and isinstance(output, Classified):
            image = self.network.reconstruct(output, batch.label)
            weight = self.recipe.optimisation.reconstruction
            losses["reconstruction_loss"] = reconstruction_loss(image, batch.target, weight=weight)
        return losses

    def output_loss(self, output: Classified | Scores, label: Tensor) -> Tensor:
        """The recipe's loss on the class activations, at this step."""
        weight = None if self.class_weights is None else self.class_weights.to(label.device)[label]  # [B]
        if self.recipe.optimisation.loss == "spread":
            return spread_loss(output.activation, label, self.margin, sample_weight=weight)
        if self.recipe.optimisation.loss == "margin":
            return margin_loss(output.activation, label, sample_weight=weight)
        if isinstance(output, Scores):
            return weighted_mean(cross_entropy(output.logits, label, reduction="none"), weight)  # [B] to []
        return activation_cross_entropy(output.activation, label, sample_weight=weight)

    def configure_optimizers(self) -> Any:
        settings = self.recipe.optimisation
        layers = [layer for layer in self.network.modules() if isinstance(layer, RoutedLayer)]
        matrices = [layer.weight for layer in layers]
        bandwidths = [layer.log_bandwidth for layer in layers if layer.log_bandwidth is not None]
        apart = {id(p) for p in (*matrices, *bandwidths)}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in self.network.parameters() if id(p) not in apart], "lr": settings.rate},
            {"params": matrices, "lr": settings.rate * settings.routing_rate},
        ]
        if bandwidths:  # decay would pull them to 1, which is no smaller than another bandwidth
            groups.append({"params": bandwidths, "lr": settings.rate, "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, eps=ADAM_EPSILON)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate_share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
