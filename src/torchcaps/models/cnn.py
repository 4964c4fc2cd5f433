"""The paper's baseline: the hybrids' convolutions with max pooling where the capsule layers were."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.models.network import Network
from torchcaps.models.registry import register_model
from torchcaps.nn.initial import ConvInit, Device, convolution
from torchcaps.nn.norm import Convolution, Norm
from torchcaps.nn.routed import check_positive
from torchcaps.ops.layout import channels_last
from torchcaps.types import Scores


class BaselineCnn(Network):
    """Convolutions with ReLU and 2x2 max pooling, a last one with a channel for each class, global average, softmax.

    ``widths`` and ``kernels`` are the output channels and kernel sizes of the convolutions after the first. With
    ``norm="batch"`` all but the last are normalised.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        kernels: tuple[int, ...],
        *,
        num_classes: int,
        image_size: int,
        in_channels: int = 1,
        first_channels: int = 64,
        conv_init: ConvInit = "paper",
        norm: Norm = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, conv_init)
        check_positive(type(self).__name__, first_channels=first_channels)
        shrink = 2 ** (len(widths) + 1)
        if image_size % shrink:
            raise ValueError(f"image_size={image_size}: expected a multiple of {shrink}, for the pooling")
        sizes = list(zip((first_channels, *widths), (5, *kernels), strict=True))
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.layers = pooled_convolutions(in_channels, sizes, conv_init=conv_init, norm=norm, **factory)
        self.layers.append(convolution(sizes[-1][0], num_classes, 3, conv_init, **factory))

    @property
    def head(self) -> tuple[str, ...]:
        return (f"layers.{len(self.layers) - 1}.",)

    def forward(self, image: Tensor) -> Scores:
        """``[B, in_channels, S, S]`` -> activation and logits ``[B, num_classes]``."""
        self.check_image(image)
        logits = self.layers(channels_last(image)).mean((2, 3))
        return Scores(logits.softmax(1), logits)


def pooled_convolutions(
    in_channels: int, sizes: Sequence[tuple[int, int]], *, conv_init: ConvInit, norm: Norm, **factory: Any
) -> nn.Sequential:
    """Convolutions of so many channels and such kernels, each with its norm, 2x2 max pooling and ReLU."""
    layers = nn.Sequential()
    for channels, kernel in sizes:
        if norm is None:
            layers.append(convolution(in_channels, channels, kernel, conv_init, **factory))
        else:
            layers.append(Convolution(in_channels, channels, kernel, conv_init=conv_init, norm=norm, **factory))
        layers.extend([nn.MaxPool2d(2), nn.ReLU()])  # in this order: the same values, from a quarter as many
        in_channels = channels
    return layers


@register_model
def cnn64(*, num_classes: int = 5, image_size: int = 64, **options: Any) -> BaselineCnn:
    """The baseline beside ``hybrid64``."""
    return BaselineCnn((128, 128, 256), (3, 5, 3), num_classes=num_classes, image_size=image_size, **options)


@register_model
def cnn32(*, num_classes: int = 10, image_size: int = 32, **options: Any) -> BaselineCnn:
    """The baseline beside ``hybrid32``."""
    return BaselineCnn((128, 256), (3, 3), num_classes=num_classes, image_size=image_size, **options)
