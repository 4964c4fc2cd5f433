"""Hybrids of convolutions and capsules: the paper's, reconstructed from its text (its figure is lost), and our own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.functional.registry import RoutingMethod
from torchcaps.models.cnn import pooled_convolutions
from torchcaps.models.network import Network
from torchcaps.models.registry import register_model
from torchcaps.nn import CapsuleConv2d, ClassCapsules, Decoder, PoseResidual, PrimaryCapsules
from torchcaps.nn.initial import ConvInit, Device
from torchcaps.nn.norm import Norm
from torchcaps.nn.routed import BetaInit, check_positive
from torchcaps.ops.layout import channels_last
from torchcaps.types import POSE_SIZE, Capsules, Classified


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A capsule layer, and the convolution after it."""

    capsules: int
    residual: int | None = None  # kernel size of the residual block, or none
    field: int = 2
    stride: int = 2
    padding: int = 0

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
POOLED = (Stage(capsules=32),)


class HybridNetwork(Network):
    """Primary capsules, stages of routing and convolution, class capsules; an optional decoder.

    ``widths`` and ``kernels`` are the channels and kernel sizes of convolutions after the first, as in the baseline
    CNN. All but the last are followed by max pooling; the last one's channels are the poses of the primary capsules.
    In the paper's networks the first convolution is also the last. ``primary_pool=2`` pools the primary capsules, too.

    ``fields``, ``strides`` and ``paddings``, one number per stage, replace those of ``stages``. ``class_shared`` and
    ``class_coordinates`` are those of :class:`ClassCapsules`; ``residual=False`` leaves the convolutions between the
    capsule layers out. ``norm="batch"`` normalises convolutions, and with ``norm_poses`` also the poses of the stages.
    """

    has_capsules = True

    def __init__(
        self,
        stages: Sequence[Stage],
        widths: tuple[int, ...] = (),
        kernels: tuple[int, ...] = (),
        *,
        num_classes: int,
        image_size: int,
        in_channels: int = 1,
        first_channels: int = 64,
        primary_pool: int = 1,
        routing: str | RoutingMethod = "frem",
        iterations: int = 2,
        transform_std: float = 0.1,
        beta_init: BetaInit = "neutral",
        learn_bandwidth: bool = False,
        conv_init: ConvInit = "paper",
        norm: Norm = None,
        norm_poses: bool = True,
        residual: bool = True,
        fields: Sequence[int] = (),
        strides: Sequence[int] = (),
        paddings: Sequence[int] = (),
        class_shared: bool = False,
        class_coordinates: bool = False,
        decoder: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **routing_options: Any,
    ) -> None:
        super().__init__(num_classes, in_channels, image_size, conv_init)
        check_positive(type(self).__name__, first_channels=first_channels, primary_pool=primary_pool)
        stages = with_windows(stages, fields=fields, strides=strides, paddings=paddings)
        shrink = 2 ** len(widths) * primary_pool * math.prod(stage.stride for stage in stages)
        if image_size % shrink:
            raise ValueError(
                f"image_size={image_size}: expected a multiple of {shrink}, the product of the network's strides"
            )
        *pooled, (channels, kernel) = zip((first_channels, *widths), (5, *kernels), strict=True)
        if channels % POSE_SIZE:
            name = "the last of widths" if widths else "first_channels"
            raise ValueError(f"{name}={channels}: expected a multiple of {POSE_SIZE}, the size of a pose")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        options: dict[str, Any] = {
            "routing": routing,
            "iterations": iterations,
            "transform_std": transform_std,
            "beta_init": beta_init,
            "learn_bandwidth": learn_bandwidth,
            **factory,
            **routing_options,
        }
        convolutions: dict[str, Any] = {"conv_init": conv_init, "norm": norm, **factory}
        self.body = pooled_convolutions(in_channels, pooled, **convolutions)
        capsules, body_channels = channels // POSE_SIZE, pooled[-1][0] if pooled else in_channels
        self.primary = PrimaryCapsules(body_channels, capsules, kernel, pool=primary_pool, **convolutions)
        self.stages = nn.Sequential()
        side = image_size // 2 ** len(pooled) // primary_pool
        for stage in stages:
            window = (stage.field, stage.stride, stage.padding)
            layer = CapsuleConv2d(capsules, stage.capsules, *window, norm=norm if norm_poses else None, **options)
            self.stages.append(layer)
            side, _ = layer.window.output_size(side, side)
            capsules = stage.capsules
            if residual and stage.residual is not None:
                self.stages.append(PoseResidual(capsules, stage.residual, **convolutions))
        self.class_capsules = ClassCapsules(
            capsules, num_classes, side, shared=class_shared, coordinates=class_coordinates, **options
        )
        self.decoder = Decoder(num_classes, in_channels, conv_init=conv_init, **factory) if decoder else None

    @property
    def head(self) -> tuple[str, ...]:
        return ("class_capsules.", "decoder.")

    def forward(self, image: Tensor) -> Classified:
        """``[B, in_channels, S, S]`` -> pose ``[B, num_classes, 16]``, activation ``[B, num_classes]``."""
        self.check_image(image)
        capsules: Capsules = self.stages(self.primary(self.body(channels_last(image))))
        output: Classified = self.class_capsules(capsules)
        return output

    def reconstruct(self, pose: Tensor | Classified, label: Tensor | None = None) -> Tensor:
        """Images in [0, 1] from class poses, all but those of ``label [B]`` masked: ``[B, in_channels, 32, 32]``.

        Given the network's whole output instead of ``pose [B, num_classes, 16]``, the label is by default the predicted
        one; poses alone, without a label, are decoded as they are.
        """
        if self.decoder is None:
            return super().reconstruct(pose, label)
        if isinstance(pose, Classified):
            pose, activation = pose
            label = activation.argmax(1) if label is None else label
        image: Tensor = self.decoder(pose, label)
        return image


def with_windows(stages: Sequence[Stage], **sizes: Sequence[int]) -> tuple[Stage, ...]:
    """The stages with other ``fields``, ``strides`` or ``paddings``: none, or one for each stage."""
    changed = tuple(stages)
    for name, values in sizes.items():
        if not isinstance(values, Sequence) or len(values) not in (0, len(changed)):
            layers = f"a number for each of the {len(changed)} capsule layers before the last, or none"
            expected = layers if changed else "none: this network has a single capsule layer"
            raise ValueError(f"{name}={values!r}: expected {expected}")
        if values:
            field = name.removesuffix("s")
            changed = tuple(replace(stage, **{field: value}) for stage, value in zip(changed, values, strict=True))
    return changed


@register_model
def hybrid64(*, num_classes: int = 5, image_size: int = 64, **options: Any) -> HybridNetwork:
    """The paper's network for 64x64 images: five layers with routing."""
    return HybridNetwork(HYBRID64, num_classes=num_classes, image_size=image_size, **options)


@register_model
def hybrid32(*, num_classes: int = 10, image_size: int = 32, **options: Any) -> HybridNetwork:
    """The paper's network for 32x32 images: four layers with routing (CIFAR-10: in_channels=3, first_channels=256)."""
    return HybridNetwork(HYBRID32, num_classes=num_classes, image_size=image_size, **options)


@register_model
def poolcaps64(*, num_classes: int = 5, image_size: int = 64, **options: Any) -> HybridNetwork:
    """The convolutions of ``cnn64`` with their max pooling; capsules from the last one on: two layers with routing."""
    return HybridNetwork(POOLED, (128, 128, 256), (3, 5, 3), num_classes=num_classes, image_size=image_size, **options)


@register_model
def poolcaps32(*, num_classes: int = 10, image_size: int = 32, **options: Any) -> HybridNetwork:
    """The convolutions of ``cnn32`` with their max pooling; capsules from the last one on: two layers with routing."""
    return HybridNetwork(POOLED, (128, 256), (3, 3), num_classes=num_classes, image_size=image_size, **options)


@register_model
def headcaps64(*, num_classes: int = 5, image_size: int = 64, primary_pool: int = 2, **options: Any) -> HybridNetwork:
    """``cnn64`` with class capsules in the place of its last convolution and average: one layer with routing."""
    options |= {"num_classes": num_classes, "image_size": image_size, "primary_pool": primary_pool}
    return HybridNetwork((), (128, 128, 256), (3, 5, 3), **options)


@register_model
def headcaps32(*, num_classes: int = 10, image_size: int = 32, primary_pool: int = 2, **options: Any) -> HybridNetwork:
    """``cnn32`` with class capsules in the place of its last convolution and average: one layer with routing."""
    options |= {"num_classes": num_classes, "image_size": image_size, "primary_pool": primary_pool}
    return HybridNetwork((), (128, 256), (3, 3), **options)
