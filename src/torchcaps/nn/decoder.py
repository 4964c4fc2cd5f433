"""Class poses back to an image, as a regulariser (Sabour et al. 2017)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from torchcaps.functional.losses import check_labels
from torchcaps.nn.initial import ConvInit, Device, init_weights_, start_anew_
from torchcaps.nn.routed import check_placement, check_positive
from torchcaps.types import POSE_SIZE


class Decoder(nn.Module):
    """Three fully connected layers from the class poses to an image in [0, 1].

    >>> Decoder(num_classes=10)(torch.randn(2, 10, 16), label=torch.tensor([3, 7])).shape
    torch.Size([2, 1, 32, 32])
    """

    def __init__(
        self,
        num_classes: int,
        out_channels: int = 1,
        image_size: int = 32,
        *,
        conv_init: ConvInit = "paper",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive("Decoder", num_classes=num_classes, out_channels=out_channels, image_size=image_size)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_classes, self.conv_init = num_classes, conv_init
        self.layers = nn.Sequential(
            nn.Linear(POSE_SIZE * num_classes, 512, **factory),
            nn.ReLU(),
            nn.Linear(512, 1024, **factory),
            nn.ReLU(),
            nn.Linear(1024, out_channels * image_size**2, **factory),
            nn.Sigmoid(),
            nn.Unflatten(1, (out_channels, image_size, image_size)),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                init_weights_(layer, conv_init)

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for part in self.children():
            start_anew_(part, self.conv_init)

    def forward(self, pose: Tensor, label: Tensor | None = None) -> Tensor:
        """``[B, num_classes, 16]``, ``[B]`` -> ``[B, out_channels, H, W]``.

        The poses of all classes but ``label`` are masked; without a label the poses are taken as they are.
        """
        if pose.dim() != 3 or pose.shape[1:] != (self.num_classes, POSE_SIZE):
            raise ValueError(
                f"Decoder: pose has shape {list(pose.shape)}, expected [B, {self.num_classes}, {POSE_SIZE}]"
            )
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        check_placement("Decoder", "pose", pose, first.weight)
        if label is not None:
            check_labels(label, pose)
            pose = pose * one_hot(label, self.num_classes).to(pose).unsqueeze(-1)
        image: Tensor = self.layers(torch.flatten(pose, 1))
        return image
