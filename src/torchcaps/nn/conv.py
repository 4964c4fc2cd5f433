"""Capsules to capsules over a sliding receptive field."""

from typing import Any

import torch

from torchcaps.functional.registry import RoutingMethod
from torchcaps.nn.initial import Device
from torchcaps.nn.norm import Norm, affine_of, make_norm
from torchcaps.nn.routed import BetaInit, RoutedLayer
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIZE, Capsules


def pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    """A size for height and width, given as one number or two."""
    both = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or not all(isinstance(x, int) and not isinstance(x, bool) and x >= least for x in both):
        raise ValueError(f"{name}={value!r}: expected a whole number of at least {least}, or two of them")
    return both[0], both[1]


class CapsuleConv2d(RoutedLayer):
    """Route every receptive field of a map to ``out_capsules`` capsules.

    The transformation matrices are shared by all positions of the map and differ by place inside the field. Options
    of the routing method (``kernel``, ``distance``, ``bandwidth``, ...) are given by name. As in a convolution, rows
    and columns at the end that no whole stride reaches are left out. With ``norm="batch"`` the poses that the layer
    gives are normalised, after the activation was found from them as they were.

    >>> layer = CapsuleConv2d(4, 8, kernel_size=3, stride=1, padding=1, routing="frms", kernel="gaussian")
    >>> pose, activation = layer(Capsules(torch.randn(2, 64, 10, 10), torch.rand(2, 4, 10, 10)))
    >>> pose.shape, activation.shape
    (torch.Size([2, 128, 10, 10]), torch.Size([2, 8, 10, 10]))
    """

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        kernel_size: int | tuple[int, int] = 2,
        stride: int | tuple[int, int] = 2,
        padding: int | tuple[int, int] = 0,
        *,
        routing: str | RoutingMethod = "frem",
        iterations: int = 2,
        transform_std: float = 0.1,
        beta_init: BetaInit = "neutral",
        norm: Norm = None,
        learn_bandwidth: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **routing_options: Any,
    ) -> None:
        window = Window(pair("kernel_size", kernel_size, 1), pair("stride", stride, 1), pair("padding", padding, 0))
        super().__init__(
            in_capsules,
            out_capsules,
            window.kernel_size[0] * window.kernel_size[1] * in_capsules,
            routing=routing,
            iterations=iterations,
            transform_std=transform_std,
            beta_init=beta_init,
            learn_bandwidth=learn_bandwidth,
            routing_options=routing_options,
            device=device,
            dtype=dtype,
        )
        self.window = window
        self.norm = make_norm(norm, POSE_SIZE * out_capsules, device, dtype)

    def forward(self, capsules: Capsules) -> Capsules:
        """``[B, 16 in, H, W]``, ``[B, in, H, W]`` -> ``[B, 16 out, Ho, Wo]``, ``[B, out, Ho, Wo]``, channels-last."""
        affine = None if self.norm is None else affine_of(self.norm)
        pose, activation = self.route(self.check(capsules), self.weight, self.window, affine=affine)
        maps = pose.flatten(3).permute(0, 3, 1, 2)  # [B, 16 out, Ho, Wo]
        if self.norm is not None and affine is None:
            maps = self.norm(maps)
        return Capsules(maps, activation.permute(0, 3, 1, 2))

    def extra_repr(self) -> str:
        window = ", ".join(f"{name}={size}" for name, size in self.window._asdict().items())
        return f"{self.in_capsules}, {self.out_capsules}, {window}, {self.describe_routing()}"
