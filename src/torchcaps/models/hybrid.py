"""The paper's hybrids of convolutions and capsules, reconstructed from its text (its figure is lost)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from torchcaps.models.network import Network
from torchcaps.models.registry import register_model
from torchcaps.nn import CapsuleConv2d, ClassCapsules, Decoder, PoseResidual, PrimaryCapsules
from torchcaps.nn.initial import ConvInit
from torchcaps.nn.routed import BetaInit, check_positive
from torchcaps.types import POSE_SIZE, Capsules, Classified


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A capsule layer, and the convolution behind it."""

    capsules: int
    residual: int | None = None  # kernel size of the residual block, or none
    field: int = 2
    stride: int = 2

    def __post_init__(self) -> None:
        check_positive("Stage", capsules=self.capsules, field=self.field, stride=self.stride)
        if self.residual is not None:
            check_positive("Stage", residual=self.residual)


HYBRID64 = (
    Stage(capsules=8, residual=3),
    Stage(capsules=8, residual=5),
    Stage(capsules=16, residual=3),
    Stage(capsules=32),
)
HYBRID32 = (HYBRID64[0], *HYBRID64[2:])  # without the second capsule layer and its residual block


class HybridNetwork(Network):
    """Primary capsules, stages of routing and convolution, class capsules; an optional decoder.

    ``class_shared`` and ``class_coordinates`` are those of :class:`ClassCapsules`; ``residual=False`` leaves the
    convolutions between the capsule layers out.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        classes: int,
        image_size: int,
        in_channels: int = 1,
        first_channels: int = 64,
        routing: str = "frem",
        iterations: int = 2,
        transform_std: float = 0.1,
        beta_init: BetaInit = "neutral",
        conv_init: ConvInit = "paper",
        residual: bool = True,
        class_shared: bool = False,
        class_coordinates: bool = False,
        decoder: bool = False,
        **routing_options: Any,
    ) -> None:
        super().__init__(classes, in_channels, image_size)
        check_positive(type(self).__name__, first_channels=first_channels)
        shrink = math.prod(stage.stride for stage in stages)
        if image_size % shrink:
            raise ValueError(
                f"image_size={image_size}: wanted a multiple of {shrink}, the product of the network's strides"
            )
        if first_channels % POSE_SIZE:
            raise ValueError(f"first_channels={first_channels}: wanted a multiple of {POSE_SIZE}, the size of a pose")
        options = {
            "routing": routing,
            "iterations": iterations,
            "transform_std": transform_std,
            "beta_init": beta_init,
            **routing_options,
        }
        capsules = first_channels // POSE_SIZE
        self.primary = PrimaryCapsules(in_channels, capsules, conv_init=conv_init)
        self.stages = nn.Sequential()
        side = image_size
        for stage in stages:
            layer = CapsuleConv2d(capsules, stage.capsules, stage.field, stage.stride, **options)
            self.stages.append(layer)
            side, _ = layer.window.output_size(side, side)
            capsules = stage.capsules
            if residual and stage.residual is not None:
                self.stages.append(PoseResidual(capsules, stage.residual, conv_init=conv_init))
        self.class_capsules = ClassCapsules(
            capsules, classes, side, shared=class_shared, coordinates=class_coordinates, **options
        )
        self.decoder = Decoder(classes, in_channels, conv_init=conv_init) if decoder else None

    def forward(self, image: Tensor) -> Classified:
        """``[B, in_channels, S, S]`` -> pose ``[B, classes, 16]``, activation ``[B, classes]``."""
        self.check_image(image)
        capsules: Capsules = self.stages(self.primary(image))
        output: Classified = self.class_capsules(capsules)
        return output

    def reconstruct(self, pose: Tensor | Classified, label: Tensor | None = None) -> Tensor:
        """Images in [0, 1] from class poses, all but those of ``label [B]`` masked: ``[B, in_channels, 32, 32]``.

        Given the network's whole output instead of ``pose [B, classes, 16]``, the label is by default the predicted
        one; poses alone, without a label, are decoded as they are.
        """
        if self.decoder is None:
            return super().reconstruct(pose, label)
        if isinstance(pose, Classified):
            pose, activation = pose
            label = activation.argmax(1) if label is None else label
        image: Tensor = self.decoder(pose, label)
        return image


@register_model
def hybrid64(*, classes: int = 5, image_size: int = 64, **options: Any) -> HybridNetwork:
    """The paper's network for 64x64 images: five layers with routing."""
    return HybridNetwork(HYBRID64, classes=classes, image_size=image_size, **options)


@register_model
def hybrid32(*, classes: int = 10, image_size: int = 32, **options: Any) -> HybridNetwork:
    """The paper's network for 32x32 images: four layers with routing (CIFAR-10: in_channels=3, first_channels=256)."""
    return HybridNetwork(HYBRID32, classes=classes, image_size=image_size, **options)
