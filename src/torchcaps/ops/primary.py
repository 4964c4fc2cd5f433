"""The head of the primary capsules: ReLU, a 1x1 convolution and a sigmoid, in plain PyTorch and as one operator."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.ops import native
from torchcaps.ops.backend import choose


def primary_capsules(maps: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Poses and activations from the first convolution's output ``maps [B, 16 n, H, W]``, which may be overwritten.

    Shapes: weight ``[n, 16 n, 1, 1]``, bias ``[n]`` -> pose ``[B, 16 n, H, W]``, activation ``[B, n, H, W]``.
    """
    if choose("primary", {"native": lambda: native.why_not(maps=maps, weight=weight, bias=bias)}) == "reference":
        return reference_primary(maps, weight, bias)
    run: Any = native_primary if torch.compiler.is_compiling() else _InPlace.apply
    pose, activation = run(maps, weight, bias)
    return pose, activation


def reference_primary(maps: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """In place on ``maps``: these are large, and memory is what they cost."""
    pose = maps.relu_()
    return pose, F.conv2d(pose, weight, bias).sigmoid_()


@torch.library.custom_op("torchcaps::primary", mutates_args=(), device_types="cpu")
def native_primary(maps: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The twin of :func:`reference_primary`, which reads and writes the large maps once."""
    pose, activation = _new_outputs(maps, weight)
    native.core.primary_forward(
        native.rows(maps),
        weight.detach().contiguous(),
        bias.detach().contiguous(),
        native.rows(pose),
        native.rows(activation),
        torch.get_num_threads(),
    )
    return pose, activation


@torch.library.custom_op("torchcaps::primary_", mutates_args={"maps"}, device_types="cpu")
def native_primary_(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """:func:`native_primary` that leaves the poses in ``maps`` and returns the activations; without a gradient."""
    rows, activation = native.rows(maps), _new_activation(maps, weight)
    native.core.primary_forward(
        rows,
        weight.detach().contiguous(),
        bias.detach().contiguous(),
        rows,
        native.rows(activation),
        torch.get_num_threads(),
    )
    if rows.data_ptr() != maps.data_ptr():
        maps.copy_(rows.permute(0, 3, 1, 2))
    return activation


@torch.library.custom_op("torchcaps::primary_backward", mutates_args=(), device_types="cpu")
def native_primary_backward(
    grad_pose: Tensor, grad_activation: Tensor, weight: Tensor, pose: Tensor, activation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the three tensors of :func:`native_primary`."""
    grad_maps, grad_weight, grad_bias = _new_gradients(weight, pose)
    native.core.primary_backward(
        native.rows(pose),
        native.rows(activation),
        weight.detach().contiguous(),
        native.rows(grad_pose),
        native.rows(grad_activation),
        native.rows(grad_maps),
        grad_weight,
        grad_bias,
        torch.get_num_threads(),
    )
    return grad_maps, grad_weight, grad_bias


def _new_activation(maps: Tensor, weight: Tensor) -> Tensor:
    batch, _, height, width = maps.shape
    return maps.new_empty(batch, height, width, weight.shape[0]).permute(0, 3, 1, 2)  # [B, n, H, W]


def _new_outputs(maps: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(maps, memory_format=torch.channels_last), _new_activation(maps, weight)


def _new_gradients(weight: Tensor, pose: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(pose, memory_format=torch.channels_last),
        torch.empty_like(weight.contiguous()),  # with the weight's own strides, which DDP wants of a gradient
        weight.new_empty(weight.shape[0]),
    )


@native_primary.register_fake
def _(maps: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return _new_outputs(maps, weight)


@native_primary_.register_fake
def _(maps: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return _new_activation(maps, weight)


@native_primary_backward.register_fake
def _(grad_pose: Tensor, grad_activation: Tensor, weight: Tensor, pose: Tensor, activation: Tensor) -> Any:
    return _new_gradients(weight, pose)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[1], *output)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_pose: Tensor | None, grad_activation: Tensor | None) -> Any:
    weight, pose, activation = ctx.saved_tensors
    if grad_activation is None:  # a routing that uses poses only: no gradient for the weight, rather than one of zeros
        return torch.ops.aten.threshold_backward(grad_pose, pose, 0), None, None
    if grad_pose is None:
        grad_pose = torch.zeros_like(pose)
    return native_primary_backward(grad_pose, grad_activation, weight, pose, activation)


native_primary.register_autograd(_gradients, setup_context=_save)
native_primary_backward.register_autograd(native.no_second_gradient)


class _InPlace(torch.autograd.Function):
    """For eager mode: no second large map. A compiled graph takes the operator, which has no side effects."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor) -> Any:
        activation = native_primary_(maps, weight, bias)
        ctx.mark_dirty(maps)
        _save(ctx, (maps, weight, bias), (maps, activation))
        return maps, activation

    backward = staticmethod(_gradients)
