"""Convolutions between capsule layers."""

from typing import Any

import torch
from torch import nn

from torchcaps.nn.initial import ConvInit, Device, convolution, start_anew_
from torchcaps.nn.norm import Norm, affine_of, convolve, folded, make_norm
from torchcaps.nn.routed import check_capsules, check_positive
from torchcaps.nn.watched import is_plain_conv, own_output
from torchcaps.ops.residual import pose_convolution, pose_residual
from torchcaps.types import POSE_SIZE, Capsules


class PoseResidual(nn.Module):
    """pose -> ReLU(pose + conv(pose)); the activations pass by. With ``norm="batch"``: ReLU(pose + norm(conv(pose))).

    >>> import torch
    >>> capsules = Capsules(torch.randn(2, 128, 8, 8), torch.rand(2, 8, 8, 8))
    >>> PoseResidual(8)(capsules).pose.shape
    torch.Size([2, 128, 8, 8])
    """

    def __init__(
        self,
        capsules: int,
        kernel_size: int = 3,
        *,
        conv_init: ConvInit = "paper",
        norm: Norm = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive("PoseResidual", capsules=capsules, kernel_size=kernel_size)
        self.capsules = capsules
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        channels = POSE_SIZE * capsules
        self.conv_init = conv_init
        self.norm = make_norm(norm, channels, **factory)
        self.conv = convolution(channels, channels, kernel_size, conv_init, bias=self.norm is None, **factory)

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for part in self.children():
            start_anew_(part, self.conv_init)

    def forward(self, capsules: Capsules) -> Capsules:
        """``[B, 16 n, H, W]``, ``[B, n, H, W]`` -> the same shapes."""
        pose, activation = check_capsules("PoseResidual", capsules, self.capsules, self.conv.weight)
        conv, norm = self.conv, self.norm
        if not is_plain_conv(conv):
            return Capsules(convolve(conv, norm, pose).add_(pose).relu_(), activation)
        if norm is None:
            return Capsules(pose_residual(pose, conv.weight, conv.bias), activation)
        if affine := affine_of(norm):
            return Capsules(pose_residual(pose, *folded(conv, affine)), activation)
        maps = norm(pose_convolution(pose, conv.weight, conv.bias))  # [B, 16 n, H, W]
        return Capsules((maps.add_(pose) if own_output(norm) else maps + pose).relu_(), activation)
