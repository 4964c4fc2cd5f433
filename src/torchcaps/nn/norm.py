"""Batch normalisation (Ioffe and Szegedy 2015); in evaluation it is folded into what comes before it.

A layer's norm is a plain ``nn.BatchNorm2d``, with its state, freezing and modes as users know them. What is folded is
worked out in each call, differentiably, and never kept; a norm that was replaced or that has hooks is called.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.nn.initial import ConvInit, Device, convolution, start_anew_
from torchcaps.nn.watched import is_plain_conv, is_watched, own_output

Norm = Literal["batch"] | None
NORMS = (None, "batch")


def make_norm(
    norm: Norm, channels: int, device: Device = None, dtype: torch.dtype | None = None
) -> nn.BatchNorm2d | None:
    """The norm of a map of so many channels, or none."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r}: expected None or 'batch'")
    return nn.BatchNorm2d(channels, device=device, dtype=dtype) if norm == "batch" else None


def affine_of(norm: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Scale and shift ``[C]`` of a norm in evaluation; None for one that has to be called."""
    if type(norm) is not nn.BatchNorm2d or norm.training or is_watched(norm):
        return None
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:  # it takes the statistics of each batch
        return None
    precise = torch.promote_types(variance.dtype, torch.float32)
    scale = (variance.to(precise) + norm.eps).rsqrt()  # [C]
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -mean * scale  # [C]
    return scale, shift if norm.bias is None else shift + norm.bias


def folded(conv: nn.Conv2d, affine: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution that gives scale * conv + shift."""
    scale, shift = affine
    bias = shift if conv.bias is None else shift + scale * conv.bias
    return (conv.weight * scale.view(-1, 1, 1, 1)).to(conv.weight.dtype), bias.to(conv.weight.dtype)


def convolve(conv: nn.Conv2d, norm: nn.Module | None, maps: Tensor) -> Tensor:
    """norm(conv(maps)), in evaluation as one convolution; what it gives may be overwritten."""
    affine = affine_of(norm) if norm is not None and is_plain_conv(conv) else None
    if affine is not None:
        return F.conv2d(maps, *folded(conv, affine), padding="same")
    convolved: Tensor = conv(maps)
    result: Tensor = convolved if norm is None else norm(convolved)
    return result if own_output(conv if norm is None else norm) else result.clone()


class Convolution(nn.Module):
    """A convolution that keeps the size of its map, with the norm that follows it."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        conv_init: ConvInit = "paper",
        norm: Norm = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv_init = conv_init
        self.norm = make_norm(norm, out_channels, **factory)
        bias = self.norm is None
        self.conv = convolution(in_channels, out_channels, kernel_size, conv_init, bias=bias, **factory)

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for part in self.children():
            start_anew_(part, self.conv_init)

    def forward(self, maps: Tensor) -> Tensor:
        """``[B, in_channels, H, W]`` -> ``[B, out_channels, H, W]``."""
        return convolve(self.conv, self.norm, maps)
