"""The memory layout of maps."""

import torch
from torch import Tensor

from torchcaps.ops import native


def channels_last(maps: Tensor) -> Tensor:
    """Maps ``[B, C, H, W]`` in the memory order in which routing reads them; what is convolved from them has it too."""
    # .to(), not .contiguous(), which leaves the strides of a single channel as they are; vmap has no rule for it
    return maps if native.is_transformed() else maps.to(memory_format=torch.channels_last)
