"""What every method of explanation gives: how much each place of the image has to do with the class."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.models.network import Network


class Relevance(NamedTuple):
    """Maps from 0 on; only the proportions inside each count."""

    heat: Tensor  # [B, S, S]
    layers: dict[str, Tensor]  # at the inputs of inner layers, as far as the method has them: [B, H, W]


# The network, its input [B, C, S, S], and the classes [B] to explain.
Explainer = Callable[[Network, Tensor, Tensor], Relevance]


def as_share(maps: Tensor) -> Tensor:
    """Maps ``[B, H, W]`` that sum to 1; even where nothing is relevant."""
    maps = maps.float()
    peak = maps.amax((1, 2), keepdim=True)
    # Divided by the peak first: a sum of tiny numbers, or of huge ones, would lose them.
    maps = torch.where(peak > 0, maps / peak, torch.ones_like(maps))
    return maps / maps.sum((1, 2), keepdim=True)
