"""How weights start."""

from typing import Literal

from torch import Tensor, nn

ConvInit = Literal["paper", "torch"]
CONV_INITS = ("paper", "torch")
PAPER_STD = 0.01


def truncated_normal_(tensor: Tensor, std: float) -> None:
    """The paper's distribution: normal with mean 0, cut at two standard deviations."""
    nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std)


def init_conv_(conv: nn.Conv2d | nn.Linear, how: ConvInit) -> None:
    """Start a convolution as the paper does (deviation 0.01, biases too), or leave it as PyTorch starts it."""
    if how not in CONV_INITS:
        raise ValueError(f"conv_init={how!r}: wanted one of {', '.join(CONV_INITS)}")
    if how == "paper":
        for parameter in conv.parameters():
            truncated_normal_(parameter, PAPER_STD)
