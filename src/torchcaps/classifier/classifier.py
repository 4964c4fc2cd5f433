"""A network that takes images as they come, and answers with names."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps.data.arrays import Images, as_channels, as_images
from torchcaps.data.pipeline import MARGIN_OF_13, Pipeline, mean_over_crops
from torchcaps.data.types import DataError, Split
from torchcaps.models.network import Network
from torchcaps.models.registry import create_model
from torchcaps.types import Classified, Scores

BATCH_PIXELS = 200 * 64**2  # the most that a network gets at once in an evaluation, for each channel
SOURCE_PIXELS = 16 * BATCH_PIXELS  # the most in the images from which these are cut


class Predictions(NamedTuple):
    """The classes that a classifier finds."""

    label: Tensor  # [N] int64, the class of the highest activation
    activation: Tensor  # [N, classes]
    names: list[str]  # of the labels


class Epoch(NamedTuple):
    """How an epoch of training ended; errors are shares, 0 to 1, and None where they are not known."""

    epoch: int  # counted from 1
    loss: float
    training_error: float | None
    validation_error: float | None


class Classifier(nn.Module):
    """A network, the pipeline that prepares its input, and the names of its classes.

    Called as it is, it is its network: prepared images in, class capsules out. `predict` takes any images.
    """

    def __init__(
        self,
        model: str,
        options: dict[str, Any],
        pipeline: Pipeline,
        classes: tuple[str, ...],
        card: dict[str, Any] | None = None,
    ) -> None:
        """Build the network ``create_model(model, **options)``; ``card`` is what else is known of it, for JSON."""
        super().__init__()
        self.network: Network = create_model(model, **options)
        self.model, self.options = model, options
        self.pipeline, self.classes, self.card = pipeline, classes, card or {}
        if len(classes) != self.network.num_classes:
            raise ValueError(f"{len(classes)} names for the {self.network.num_classes} classes of the network")
        if pipeline.crop != self.network.image_size:
            raise ValueError(f"the pipeline crops to {pipeline.crop}, the network takes {self.network.image_size}")
        if pipeline.standardise == "set" and len(pipeline.mean) != self.network.in_channels:
            raise ValueError(
                f"the pipeline has means of {len(pipeline.mean)} channels, the network takes {self.network.in_channels}"
            )

    def forward(self, image: Tensor) -> Classified | Scores:
        """Prepared images ``[B, C, S, S]`` to the network's output."""
        output: Classified | Scores = self.network(image)
        return output

    @property
    def history(self) -> tuple[Epoch, ...]:
        """Loss and errors by epoch, where `torchcaps.fit` has trained this classifier."""
        return tuple(Epoch(*(row.get(name) for name in Epoch._fields)) for row in self.card.get("history", ()))

    @property
    def validation_error(self) -> float | None:
        """Share of the validation images that these weights got wrong, 0 to 1; None where there were none."""
        result = self.card.get("result", {})
        error: float | None = result.get(
            "best_validation_error" if result.get("weights") == "best" else "validation_error"
        )
        return error

    def save(self, folder: str | Path) -> None:
        """Write all of it into a folder, for `torchcaps.load`."""
        from torchcaps.classifier.files import save

        save(self, folder)

    @property
    def source_size(self) -> int:
        """Shorter side of the images from which crops are taken."""
        return self.pipeline.resize or self.pipeline.crop

    def as_split(self, images: Images) -> Split:
        """Images in any form of `as_images`, with labels that are all zero."""
        shape = np.shape(images)
        if self.network.in_channels == 3 and len(shape) == 3 and shape[0] == 3 != shape[2]:
            raise DataError(
                f"images of shape {list(shape)} are ambiguous, three grey images or one in colour: "
                "expected [N, C, H, W], as from images[None]"
            )
        pixels = as_images(images)
        return Split(pixels, torch.zeros(len(pixels), dtype=torch.int64))

    def prepare(self, images: Images | Split) -> Split:
        """Images of any size, or a split, at the size that is cropped; again without effect.

        The shorter side is resized where the pipeline says so. Grey images become colours for a network of colours,
        and the other way round.
        """
        images = images if isinstance(images, Split) else self.as_split(images)
        height, width = images.images.shape[2:]
        if self.pipeline.resize is None and min(height, width) < self.pipeline.crop:
            side = self.pipeline.crop
            raise DataError(f"images are {height}x{width}, the network needs at least {side}x{side}")
        pixels = as_channels(images.images, self.network.in_channels)
        return self.pipeline.prepare(replace(images, images=pixels))

    @torch.no_grad()
    def activations(self, split: Split, *, crops: int = 1, batch_size: int | None = None) -> Tensor:
        """Class activations ``[N, classes]`` of a split, averaged over ``crops`` crops of each image.

        Batches are prepared one by one, so that a large ``resize`` never fills the memory. ``batch_size`` is 200 by
        default, and less for large images.
        """
        side = self.pipeline.resize or min(split.images.shape[2:])
        if crops > 1 and side == self.pipeline.crop:
            raise DataError(f"{crops} crops would all be the same: this network sees whole images, expected crops=1")
        if crops == 13 and self.source_size - self.pipeline.crop < MARGIN_OF_13:
            raise DataError(
                f"13 crops of {self.pipeline.crop}x{self.pipeline.crop} need images that are at least {MARGIN_OF_13} "
                f"pixels larger, this network's have {self.source_size}: expected 1, 5 or 9 crops"
            )
        batch_size = batch_size or max(
            1, min(200, BATCH_PIXELS // self.pipeline.crop**2, SOURCE_PIXELS // self.source_size**2)
        )
        weight = next(self.parameters())
        was_training = self.training
        self.eval()
        found = []
        try:
            for start in range(0, len(split), batch_size):
                part = self.prepare(split.take(torch.arange(start, min(start + batch_size, len(split)))))
                batch = self.pipeline.evaluate(part.images, part.labels, crops=crops)
                found.append(mean_over_crops(self(batch.image.to(weight)).activation.cpu(), batch))
        finally:
            self.train(was_training)
        return torch.cat(found) if found else torch.empty(0, len(self.classes))

    def predict(self, images: Images, *, crops: int = 1) -> Predictions:
        """Classes of images of any size: uint8 or floats in [0, 1], ``[N, C, H, W]``, ``[N, H, W]`` or one ``[H, W]``.

        `as_images` has all forms; images that are not square are cut to their middle.
        """
        activation = self.activations(self.as_split(images), crops=crops)
        label = activation.argmax(1)
        return Predictions(label, activation, [self.classes[index] for index in label.tolist()])
