"""The residual block ReLU(pose + convolution), in plain PyTorch and as an operator whose convolution is the core's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from torchcaps.ops import native
from torchcaps.ops.backend import choose
from torchcaps.types import POSE_SIZE

TILE, KERNELS = 6, (3, 5)  # the core computes tiles of 6 x 6 inputs, by 36 products a pair of channels
FEW_TILES = 12  # do not pay for what has to be done for the weight


def pose_residual(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """ReLU(pose + convolution of the pose), with as much padding as keeps the map's size.

    Shapes: pose ``[B, C, H, W]``, weight ``[C, C, k, k]``, bias ``[C]`` -> ``[B, C, H, W]``.
    """
    if not _core_serves(pose, weight, bias):
        return reference_residual(pose, weight, bias)
    # ReLU is not part of the operator: its backward pass is over, and its memory free, when that of the operator begins
    total: Tensor = native_residual(pose, weight, bias, skip=True)
    return total.relu_()


def pose_convolution(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution of a residual block alone, for a block that does something with it before the pose is added."""
    if not _core_serves(pose, weight, bias):
        return F.conv2d(pose, weight, bias, padding="same")
    maps: Tensor = native_residual(pose, weight, bias, skip=False)
    return maps


def reference_residual(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place, on the convolution's own output: these maps are large, and memory is what they cost."""
    return F.conv2d(pose, weight, bias, padding="same").add_(pose).relu_()


def _core_serves(pose: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    chosen = choose("residual", {"native": lambda: _why_not_native(pose, weight, bias)})
    return chosen == "native" and pose.numel() > 0 and _tiles_pay(pose.shape[2], pose.shape[3], weight.shape[2])


def _why_not_native(pose: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    if reason := native.why_not(pose=pose, weight=weight, bias=bias):
        return reason
    if torch.is_autocast_enabled("cpu"):
        return f"the native core computes in float32; autocast asks for {torch.get_autocast_dtype('cpu')}"
    if weight.shape[2] != weight.shape[3] or weight.shape[2] not in KERNELS:
        return f"the native core has kernels of 3x3 and 5x5, not {weight.shape[2]}x{weight.shape[3]}"
    if pose.shape[1] % POSE_SIZE or weight.shape[:2] != (pose.shape[1], pose.shape[1]):
        return f"the native core convolves 16 n channels to as many; shape of weight: {list(weight.shape)}"
    return None


def _tiles_pay(height: int, width: int, kernel: int) -> bool:
    """Whether the core multiplies less: not in maps much smaller than a tile."""

    def taps(size: int) -> int:  # along one axis, of all positions, less those beyond the border
        reach = kernel // 2
        return sum(min(k + reach, size - 1) - max(k - reach, 0) + 1 for k in range(size))

    return _tiles(height, width, kernel) * TILE * TILE < taps(height) * taps(width)


def _tiles(height: int, width: int, kernel: int) -> int:
    side = TILE + 1 - kernel  # of a tile's outputs
    return -(-height // side) * -(-width // side)


def _are_few(maps: Tensor, weight: Tensor) -> bool:
    """Known only inside the operators: outside, a graph for any batch size would have to choose."""
    return maps.shape[0] * _tiles(maps.shape[2], maps.shape[3], weight.shape[2]) < FEW_TILES


@torch.library.custom_op("torchcaps::pose_residual", mutates_args=(), device_types="cpu")
def native_residual(pose: Tensor, weight: Tensor, bias: Tensor | None, skip: bool) -> Tensor:
    """pose + convolution, the twin of :func:`reference_residual` but for the ReLU; without ``skip`` the convolution."""
    if _are_few(pose, weight):
        # the few maps in the order of the weight: in theirs, PyTorch would bring the weight to it first
        maps = F.conv2d(pose.contiguous(), weight, bias, padding=weight.shape[2] // 2)
        return _rows_last(maps.add_(pose) if skip else maps)
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    return _convolve(pose, weight, bias, reverse=False, skip=skip)


@torch.library.custom_op("torchcaps::pose_residual_backward_pose", mutates_args=(), device_types="cpu")
def native_residual_backward_pose(grad: Tensor, weight: Tensor, skip: bool) -> Tensor:
    """The gradient of the pose, from that of :func:`native_residual`'s output."""
    if _are_few(grad, weight):
        gradient = F.conv_transpose2d(grad, weight, padding=weight.shape[2] // 2)
        return _rows_last(gradient.add_(grad) if skip else gradient)
    return _convolve(grad, weight, weight.new_zeros(weight.shape[0]), reverse=True, skip=skip)


@torch.library.custom_op("torchcaps::pose_residual_backward_weight", mutates_args=(), device_types="cpu")
def native_residual_backward_weight(grad: Tensor, pose: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the weight, of which the shape and the layout are used."""
    grad_weight = _like_the_weight(weight)
    if _are_few(pose, weight):
        gradient = conv2d_weight(pose, weight.shape, grad, padding=weight.shape[2] // 2)  # type: ignore[no-untyped-call]
        return grad_weight.copy_(gradient)
    written = grad_weight.contiguous()
    native.core.residual_backward(native.rows(pose), native.rows(grad), written, torch.get_num_threads())
    return grad_weight if written is grad_weight else grad_weight.copy_(written)


def _convolve(maps: Tensor, weight: Tensor, bias: Tensor, *, reverse: bool, skip: bool) -> Tensor:
    out = _like_the_map(maps)
    native.core.residual_forward(
        native.rows(maps),
        weight.detach().contiguous(),
        bias.detach().contiguous(),
        out.permute(0, 2, 3, 1),
        reverse,
        skip,
        torch.get_num_threads(),
    )
    return out


def _like_the_map(maps: Tensor) -> Tensor:
    return torch.empty_like(maps, memory_format=torch.channels_last)


def _rows_last(maps: Tensor) -> Tensor:
    return _like_the_map(maps).copy_(maps)


def _like_the_weight(weight: Tensor) -> Tensor:
    # with the weight's own strides, which DDP wants of a gradient
    return torch.empty_like(weight, memory_format=torch.preserve_format)


@native_residual.register_fake
def _(pose: Tensor, weight: Tensor, bias: Tensor | None, skip: bool) -> Any:
    return _like_the_map(pose)


@native_residual_backward_pose.register_fake
def _(grad: Tensor, weight: Tensor, skip: bool) -> Any:
    return _like_the_map(grad)


@native_residual_backward_weight.register_fake
def _(grad: Tensor, pose: Tensor, weight: Tensor) -> Any:
    return _like_the_weight(weight)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, bool], output: Tensor) -> None:
    pose, weight, _, ctx.skip = inputs
    ctx.save_for_backward(pose if ctx.needs_input_grad[1] else None, weight)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    pose, weight = ctx.saved_tensors
    by_pose, by_weight, by_bias, _ = ctx.needs_input_grad
    return (
        native_residual_backward_pose(grad, weight, ctx.skip) if by_pose else None,
        native_residual_backward_weight(grad, pose, weight) if by_weight else None,
        grad.sum((0, 2, 3)) if by_bias else None,
        None,
    )


native_residual.register_autograd(_gradients, setup_context=_save)
native_residual_backward_pose.register_autograd(native.no_second_gradient)
native_residual_backward_weight.register_autograd(native.no_second_gradient)
