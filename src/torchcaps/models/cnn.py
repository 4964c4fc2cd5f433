"""The paper's baseline: the hybrids' convolutions with max pooling where the capsule layers were."""

from typing import Any

from torch import Tensor, nn

from torchcaps.models.network import Network
from torchcaps.models.registry import register_model
from torchcaps.nn.initial import ConvInit, convolution
from torchcaps.nn.routed import check_positive
from torchcaps.types import Scores


class BaselineCnn(Network):
    """Convolutions with ReLU and 2x2 max pooling, a last one with a channel for each class, global average, softmax.

    ``widths`` and ``kernels`` are the output channels and kernel sizes of the convolutions behind the first.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        kernels: tuple[int, ...],
        *,
        classes: int,
        image_size: int,
        in_channels: int = 1,
        first_channels: int = 64,
        conv_init: ConvInit = "paper",
    ) -> None:
        super().__init__(classes, in_channels, image_size)
        check_positive(type(self).__name__, first_channels=first_channels)
        if image_size % 2 ** (len(widths) + 1):
            raise ValueError(f"image_size={image_size}: wanted a multiple of {2 ** (len(widths) + 1)}, for the pooling")
        self.layers = nn.Sequential()
        channels = in_channels
        for width, kernel in zip((first_channels, *widths), (5, *kernels), strict=True):
            conv = convolution(channels, width, kernel, conv_init)
            self.layers.extend([conv, nn.ReLU(inplace=True), nn.MaxPool2d(2)])
            channels = width
        self.layers.append(convolution(channels, classes, 3, conv_init))

    def forward(self, image: Tensor) -> Scores:
        """``[B, in_channels, S, S]`` -> activation and logits ``[B, classes]``."""
        self.check_image(image)
        logits = self.layers(image).mean((2, 3))
        return Scores(logits.softmax(1), logits)


@register_model
def cnn64(*, classes: int = 5, image_size: int = 64, **options: Any) -> BaselineCnn:
    """The baseline beside ``hybrid64``."""
    return BaselineCnn((128, 128, 256), (3, 5, 3), classes=classes, image_size=image_size, **options)


@register_model
def cnn32(*, classes: int = 10, image_size: int = 32, **options: Any) -> BaselineCnn:
    """The baseline beside ``hybrid32``."""
    return BaselineCnn((128, 256), (3, 3), classes=classes, image_size=image_size, **options)
