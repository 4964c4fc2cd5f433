"""How weights start."""

from typing import Literal

import torch
from torch import Tensor, nn

Device = torch.device | str | int | None
ConvInit = Literal["paper", "torch"]
CONV_INITS = ("paper", "torch")
PAPER_STD = 0.01


def truncated_normal_(tensor: Tensor, std: float) -> None:
    """The paper's distribution: normal with mean 0, cut at two standard deviations."""
    nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std)


def init_weights_(layer: nn.Conv2d | nn.Linear, how: ConvInit) -> None:
    """Start a layer as the paper does (standard deviation 0.01, biases too), or leave it as PyTorch starts it."""
    if how not in CONV_INITS:
        raise ValueError(f"conv_init={how!r}: expected one of {', '.join(CONV_INITS)}")
    if how == "paper":
        for parameter in layer.parameters():
            truncated_normal_(parameter, PAPER_STD)


def start_anew_(module: nn.Module, how: ConvInit) -> None:
    """What the constructors do with the weights of a module and of all in it."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        module.reset_parameters()
        init_weights_(module, how)
    elif callable(reset := getattr(module, "reset_parameters", None)):
        reset()
    else:
        for child in module.children():
            start_anew_(child, how)


def convolution(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    how: ConvInit,
    *,
    bias: bool = True,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Conv2d:
    """A convolution that keeps the size of its map.

    One that is normalised has no bias: the norm takes it away again, and an optimiser would follow its rounding.
    """
    sizes = (in_channels, out_channels, kernel_size)
    conv = nn.Conv2d(*sizes, padding="same", bias=bias, device=device, dtype=dtype)
    init_weights_(conv, how)
    return conv
