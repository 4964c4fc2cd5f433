"""Images or feature maps to the first capsules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from torchcaps.nn.initial import ConvInit, Device, convolution, start_anew_
from torchcaps.nn.norm import Norm, convolve, make_norm
from torchcaps.nn.routed import check_placement, check_positive
from torchcaps.nn.watched import is_plain_conv
from torchcaps.ops.layout import channels_last
from torchcaps.ops.primary import primary_capsules
from torchcaps.types import POSE_SIZE, Capsules


class PrimaryCapsules(nn.Module):
    """A convolution and ReLU give the poses; a 1x1 convolution of these and a sigmoid give the activations.

    With ``norm="batch"`` the first convolution is normalised before its ReLU; with ``pool=2`` its maps are then max
    pooled by 2x2, as in a CNN.

    >>> import torch
    >>> pose, activation = PrimaryCapsules(1, 4)(torch.randn(2, 1, 32, 32))
    >>> pose.shape, activation.shape
    (torch.Size([2, 64, 32, 32]), torch.Size([2, 4, 32, 32]))
    """

    def __init__(
        self,
        in_channels: int,
        capsules: int,
        kernel_size: int = 5,
        *,
        pool: int = 1,
        conv_init: ConvInit = "paper",
        norm: Norm = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(
            "PrimaryCapsules", in_channels=in_channels, capsules=capsules, kernel_size=kernel_size, pool=pool
        )
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        channels = POSE_SIZE * capsules
        self.conv_init, self.pool = conv_init, pool
        self.norm = make_norm(norm, channels, **factory)
        self.pose = convolution(in_channels, channels, kernel_size, conv_init, bias=self.norm is None, **factory)
        self.activation = convolution(channels, capsules, 1, conv_init, **factory)

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for part in self.children():
            start_anew_(part, self.conv_init)

    def forward(self, image: Tensor) -> Capsules:
        """``[B, in_channels, H, W]`` -> ``[B, 16 capsules, H, W]``, ``[B, capsules, H, W]``; pooled, at H / pool."""
        if image.dim() != 4 or image.shape[1] != self.pose.in_channels:
            raise ValueError(
                f"PrimaryCapsules: got shape {list(image.shape)}, expected [B, {self.pose.in_channels}, H, W]"
            )
        check_placement("PrimaryCapsules", "the image", image, self.pose.weight)
        maps = convolve(self.pose, self.norm, channels_last(image))  # [B, 16 capsules, H, W]
        if self.pool > 1:
            maps = max_pool2d(maps, self.pool)  # [B, 16 capsules, H / pool, W / pool]
        head = self.activation
        if is_plain_conv(head) and head.bias is not None:
            return Capsules(*primary_capsules(maps, head.weight, head.bias))
        pose = maps.relu_()
        return Capsules(pose, head(pose).sigmoid())
