"""How weights start."""

from typing import Literal

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
        raise ValueError(f"conv_init={how!r}: expected one of {', '.join(CONV_INITS)}")
    if how == "paper":
        for parameter in layer.parameters():
            truncated_normal_(parameter, PAPER_STD)


def convolution(
    in_channels: int, out_channels: int, kernel_size: int, how: ConvInit, *, bias: bool = True
) -> nn.Conv2d:
    """A convolution that keeps the size of its map.

    One that is normalised has no bias: the norm takes it away again, and an optimiser would follow its rounding.
    """
    conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding="same", bias=bias)
    init_weights_(conv, how)
    return conv
