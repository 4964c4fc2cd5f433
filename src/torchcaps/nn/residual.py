"""Convolutions between capsule layers."""

from torch import nn

from torchcaps.nn.initial import ConvInit, convolution, is_as_made
from torchcaps.nn.routed import check_capsules, check_positive
from torchcaps.ops.residual import pose_residual
from torchcaps.types import POSE_SIZE, Capsules


class PoseResidual(nn.Module):
    """pose -> ReLU(pose + conv(pose)); the activations pass by.

    >>> import torch
    >>> capsules = Capsules(torch.randn(2, 128, 8, 8), torch.rand(2, 8, 8, 8))
    >>> PoseResidual(8)(capsules).pose.shape
    torch.Size([2, 128, 8, 8])
    """

    def __init__(self, capsules: int, kernel_size: int = 3, *, conv_init: ConvInit = "paper") -> None:
        super().__init__()
        check_positive("PoseResidual", capsules=capsules, kernel_size=kernel_size)
        self.capsules = capsules
        self.conv = convolution(POSE_SIZE * capsules, POSE_SIZE * capsules, kernel_size, conv_init)

    def forward(self, capsules: Capsules) -> Capsules:
        """``[B, 16 n, H, W]``, ``[B, n, H, W]`` -> the same shapes."""
        pose, activation = check_capsules("PoseResidual", capsules, self.capsules, self.conv.weight)
        if is_as_made(self.conv):
            return Capsules(pose_residual(pose, self.conv.weight, self.conv.bias), activation)
        return Capsules(self.conv(pose).add_(pose).relu_(), activation)
