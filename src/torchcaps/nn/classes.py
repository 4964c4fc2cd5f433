"""All capsules of a map to one capsule for each class."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.registry import RoutingMethod
from torchcaps.nn.conv import pair
from torchcaps.nn.initial import Device
from torchcaps.nn.routed import BetaInit, RoutedLayer, check_positive
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIDE, POSE_SIZE, Capsules, Classified


class ClassCapsules(RoutedLayer):
    """Route the whole map to ``num_classes`` capsules.

    Each place of a map of size ``map_size`` has its own matrices. With ``shared=True`` all places share them, and a
    map of any size will do; ``coordinates=True`` then keeps the places apart as Hinton et al. 2018 do: the scaled row
    and column of a place are added to the first two elements of the right-hand column of its votes.

    >>> layer = ClassCapsules(32, 10, map_size=4)
    >>> pose, activation = layer(Capsules(torch.randn(2, 512, 4, 4), torch.rand(2, 32, 4, 4)))
    >>> pose.shape, activation.shape
    (torch.Size([2, 10, 16]), torch.Size([2, 10]))
    """

    def __init__(
        self,
        in_capsules: int,
        num_classes: int,
        map_size: int | tuple[int, int] | None = None,
        *,
        shared: bool = False,
        coordinates: bool = False,
        routing: str | RoutingMethod = "frem",
        iterations: int = 2,
        transform_std: float = 0.1,
        beta_init: BetaInit = "neutral",
        learn_bandwidth: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **routing_options: Any,
    ) -> None:
        check_positive("ClassCapsules", num_classes=num_classes)
        if map_size is None and not shared:
            raise ValueError("ClassCapsules: expected map_size (height and width of the map), or shared=True")
        size = None if map_size is None else pair("map_size", map_size, 1)
        places = 1 if shared or size is None else size[0] * size[1]
        super().__init__(
            in_capsules,
            num_classes,
            places * in_capsules,
            routing=routing,
            iterations=iterations,
            transform_std=transform_std,
            beta_init=beta_init,
            learn_bandwidth=learn_bandwidth,
            routing_options=routing_options,
            device=device,
            dtype=dtype,
        )
        self.map_size, self.shared, self.coordinates = size, shared, coordinates

    def forward(self, capsules: Capsules) -> Classified:
        """``[B, 16 in, H, W]``, ``[B, in, H, W]`` -> ``[B, num_classes, 16]``, ``[B, num_classes]``."""
        capsules = self.check(capsules)
        height, width = capsules.pose.shape[2:]
        # number by number: sizes may be symbols of torch.compile, which a tuple does not compare
        if self.map_size is not None and (height != self.map_size[0] or width != self.map_size[1]):
            expected = "x".join(map(str, self.map_size))
            raise ValueError(
                f"ClassCapsules: got a map of {height}x{width}, expected {expected}, "
                "the map_size that the layer was made for"
            )
        offset = self.vote_offset(height, width) if self.coordinates else None
        pose, activation = self.route(capsules, self.weight, Window((height, width), (1, 1), (0, 0)), offset)
        return Classified(pose[:, 0, 0], activation[:, 0, 0])

    def vote_offset(self, height: int, width: int) -> Tensor:
        """The coordinates of each input capsule's place in (0, 1), where they go in a vote: ``[H W in, 16]``."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        offset = self.weight.new_zeros(height, width, self.in_capsules, POSE_SIZE, dtype=dtype)
        row, column = torch.arange(height).to(offset), torch.arange(width).to(offset)
        offset[..., POSE_SIDE - 1] = ((row + 0.5) / height).view(-1, 1, 1)
        offset[..., 2 * POSE_SIDE - 1] = ((column + 0.5) / width).view(-1, 1)
        return offset.flatten(0, 2)

    def extra_repr(self) -> str:
        places = f"map_size={self.map_size}, shared={self.shared}, coordinates={self.coordinates}"
        return f"{self.in_capsules}, {self.out_capsules}, {places}, {self.describe_routing()}"
