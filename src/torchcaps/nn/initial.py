"""How weights start."""

from typing import Literal

import torch
from torch import Tensor, nn

ConvInit = Literal["paper", "torch"]
CONV_INITS = ("paper", "torch")
PAPER_STD = 0.01


def truncated_normal_(tensor: Tensor, std: float) -> None:
    """The paper's distribution: normal with mean 0, cut at two standard deviations."""
    nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std)


def init_weights_(layer: nn.Conv2d | nn.Linear, how: ConvInit) -> None:
    """Start a layer as the paper does (deviation 0.01, biases too), or leave it as PyTorch starts it."""
    if how not in CONV_INITS:
        raise ValueError(f"conv_init={how!r}: wanted one of {', '.join(CONV_INITS)}")
    if how == "paper":
        for parameter in layer.parameters():
            truncated_normal_(parameter, PAPER_STD)


def convolution(
    in_channels: int, out_channels: int, kernel_size: int, how: ConvInit, *, bias: bool = True
) -> nn.Conv2d:
    """A convolution that keeps the size of its map, and gives it in channels-last memory, as routing reads it.

    One that is normalised has no bias: the norm takes it away again, and an optimiser would follow its rounding.
    """
    conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding="same", bias=bias)
    init_weights_(conv, how)
    # .to(), not .contiguous(), which leaves the strides of a single input channel as they are
    conv.weight.data = conv.weight.data.to(memory_format=torch.channels_last)
    return conv


def is_as_made(layer: nn.Module) -> bool:
    """Whether a layer is what :func:`convolution` gives, and nobody looks at it; else it has to be called."""
    if type(layer) is not nn.Conv2d or layer.padding != "same" or layer.padding_mode != "zeros":
        return False
    return layer.dilation == (1, 1) and layer.groups == 1 and not has_hooks(layer)


def has_hooks(layer: nn.Module) -> bool:
    """Whether someone looks at what a layer gets or gives."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)
