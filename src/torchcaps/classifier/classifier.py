"""A network that takes images as they come, and answers with names."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.arrays import Images, as_images
from torchcaps.data.pipeline import Pipeline, mean_over_crops
from torchcaps.data.types import DataError, Split
from torchcaps.models.network import Network
from torchcaps.models.registry import create_model
from torchcaps.types import Classified, Scores


class Predictions(NamedTuple):
    """What a classifier says of some images."""

    label: Tensor  # [N] int64, the class of the highest activation
    activation: Tensor  # [N, classes]
    names: list[str]  # of the labels


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

    def forward(self, image: Tensor) -> Classified | Scores:
        """Prepared images ``[B, C, S, S]`` to what the network says of them."""
        output: Classified | Scores = self.network(image)
        return output

    def prepare(self, images: Images) -> Split:
        """Images of any size (see `as_images`) at the size from which crops are taken; labels are zero."""
        pixels = as_images(images)
        if pixels.shape[1] != self.network.in_channels:
            raise DataError(
                f"images have {pixels.shape[1]} channels, this network was trained on {self.network.in_channels}"
            )
        side = self.pipeline.resize or self.pipeline.crop
        split = Split(pixels, torch.zeros(len(pixels), dtype=torch.int64))
        if self.pipeline.resize is None and min(pixels.shape[2:]) < side:
            raise DataError(f"images are {pixels.shape[2]}x{pixels.shape[3]}, wanted at least {side}x{side}")
        return self.pipeline.prepare(split)

    @torch.inference_mode()
    def activations(self, split: Split, *, crops: int = 1, batch_size: int = 200) -> Tensor:
        """Class activations ``[N, classes]`` of a prepared split, averaged over ``crops`` crops of each image."""
        was_training = self.training
        self.eval()
        found = []
        try:
            for start in range(0, len(split), batch_size):
                stop = start + batch_size
                batch = self.pipeline.evaluate(split.images[start:stop], split.labels[start:stop], crops=crops)
                found.append(mean_over_crops(self(batch.image).activation, batch))
        finally:
            self.train(was_training)
        return torch.cat(found) if found else torch.empty(0, len(self.classes))

    def predict(self, images: Images, *, crops: int = 1) -> Predictions:
        """Classes of images of any size: uint8 or floats in [0, 1], ``[N, C, H, W]`` or ``[N, H, W]``."""
        activation = self.activations(self.prepare(images), crops=crops)
        label = activation.argmax(1)
        return Predictions(label, activation, [self.classes[index] for index in label.tolist()])
