"""The residual block ReLU(pose + convolution), in plain PyTorch and as an operator with a faster weight gradient."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.ops import native
from torchcaps.ops.backend import requested_backend
from torchcaps.types import POSE_SIZE


def pose_residual(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """ReLU(pose + convolution of the pose), with as much padding as keeps the map's size.

    Shapes: pose ``[B, C, H, W]``, weight ``[C, C, k, k]``, bias ``[C]`` -> ``[B, C, H, W]``.
    """
    if requested_backend() not in ("auto", "native") or not _core_serves(pose, weight, bias):
        return reference_residual(pose, weight, bias)
    # ReLU is not part of the operator: its backward pass is over, and its memory free, when that of the operator begins
    total: Tensor = native_residual(pose, weight, bias)
    return total.relu_()


def reference_residual(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place, on the convolution's own output: these maps are large, and memory is what they cost."""
    return F.conv2d(pose, weight, bias, padding="same").add_(pose).relu_()


def _core_serves(pose: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """As for routing, but never an error: the core knows one gradient, all else is plain PyTorch anyway."""
    tensors = [pose, weight] if bias is None else [pose, weight, bias]
    return (
        native.core is not None
        and torch.is_grad_enabled()
        and weight.requires_grad
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and (torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active())
        and pose.dim() == 4
        and pose.numel() > 0
        and pose.shape[1] % POSE_SIZE == 0
        and weight.shape[:2] == (pose.shape[1], pose.shape[1])
        and weight.shape[2] == weight.shape[3]
        and weight.shape[2] % 2 == 1
    )


@torch.library.custom_op("torchcaps::residual", mutates_args=(), device_types="cpu")
def native_residual(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """pose + convolution, the twin of :func:`reference_residual` but for the ReLU; only its gradient is native."""
    return _sum(pose, weight, bias)


@torch.library.custom_op("torchcaps::residual_weight_backward", mutates_args=(), device_types="cpu")
def native_residual_weight_backward(grad: Tensor, pose: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias, from that of :func:`native_residual`'s output; of the weight, the shape is used."""
    grad_weight, grad_bias = _new_gradients(weight)
    rows = grad_weight.permute(0, 2, 3, 1)
    native.core.residual_backward(
        native.rows(pose),
        native.rows(grad),
        written := rows if rows.is_contiguous() else torch.empty_like(rows, memory_format=torch.contiguous_format),
        grad_bias,
        torch.get_num_threads(),
    )
    if written is not rows:
        rows.copy_(written)
    return grad_weight, grad_bias


def _sum(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = pose.contiguous(memory_format=torch.channels_last)
    return F.conv2d(rows, weight, bias, padding=weight.shape[2] // 2).add_(pose)


def _new_gradients(weight: Tensor) -> tuple[Tensor, Tensor]:
    # with the weight's own strides, which DDP wants of a gradient
    return torch.empty_like(weight, memory_format=torch.preserve_format), weight.new_empty(weight.shape[0])


@native_residual.register_fake
def _(pose: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    return _sum(pose, weight, bias)


@native_residual_weight_backward.register_fake
def _(grad: Tensor, pose: Tensor, weight: Tensor) -> Any:
    return _new_gradients(weight)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    pose, weight = ctx.saved_tensors
    by_pose, by_weight, by_bias = ctx.needs_input_grad
    grad_pose = grad_weight = grad_bias = None
    if by_weight:
        grad_weight, grad_bias = native_residual_weight_backward(grad, pose, weight)
    elif by_bias:
        grad_bias = grad.sum((0, 2, 3))
    if by_pose:
        grad_pose = _pose_gradient(grad, pose, weight).add_(grad)
    return grad_pose, grad_weight, grad_bias if by_bias else None


def _pose_gradient(grad: Tensor, pose: Tensor, weight: Tensor) -> Tensor:
    around = [weight.shape[2] // 2] * 2
    gradients = torch.ops.aten.convolution_backward(
        grad, pose, weight, None, [1, 1], around, [1, 1], False, [0, 0], 1, [True, False, False]
    )
    grad_pose: Tensor = gradients[0]
    return grad_pose


native_residual.register_autograd(_gradients, setup_context=_save)
native_residual_weight_backward.register_autograd(native.no_second_gradient)
