"""The fused C++ core as PyTorch operators: transformation, all iterations and activation, without storing a vote."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIZE

core: Any
try:
    core = import_module("torchcaps._native")
except ImportError as error:
    core = None
    MISSING = f"the native core is not built ({error}): install torchcaps again where there is a C++17 compiler"
else:
    MISSING = ""

# The numeric options of all methods in the order in which the operators take them, and the value that stands for them
# in a method that has no such option.
NUMBERS = {"activation_bandwidth": 1.0, "step": 1.0, "final_lambda": 0.01, "lambda_decay": 0.95, "variance_floor": 1e-8}


@torch.library.custom_op("torchcaps::route", mutates_args=(), device_types="cpu")
def route(
    pose: Tensor,
    activation: Tensor,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    bandwidth: Tensor,
    offset: Tensor | None,
    window: list[int],
    method: str,
    iterations: int,
    kernel: str,
    activation_kernel: str,
    distance: str,
    normalize: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor]:
    """Maps ``[B, 16 n, H, W]``, ``[B, n, H, W]`` -> pose ``[B, Ho, Wo, 16 J]``, activation ``[B, Ho, Wo, J]``.

    ``first`` and ``second`` are the method's parameters: beta and beta0, or beta_u and beta_a. ``bandwidth []`` is that
    of the couplings; EM has none, and any number will do. ``offset [I, 16]`` is added to the votes for every output;
    it has no gradient.
    """
    out_pose, out_activation = _new_outputs(pose, weight, window)
    core.forward(
        *_as_the_core_reads(pose, activation, weight, first, second),
        out_pose,
        out_activation,
        _spec(bandwidth, window, method, iterations, kernel, activation_kernel, distance, normalize, numbers),
        torch.get_num_threads(),
        _dense(offset),
    )
    return out_pose, out_activation


@torch.library.custom_op("torchcaps::route_affine", mutates_args=(), device_types="cpu")
def route_affine(
    pose: Tensor,
    activation: Tensor,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    bandwidth: Tensor,
    offset: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    window: list[int],
    method: str,
    iterations: int,
    kernel: str,
    activation_kernel: str,
    distance: str,
    normalize: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor]:
    """:func:`route` with ``scale * pose + shift``, each ``[16 J]``, for its pose. For inference: it has no gradient."""
    out_pose, out_activation = _new_outputs(pose, weight, window)
    core.forward(
        *_as_the_core_reads(pose, activation, weight, first, second),
        out_pose,
        out_activation,
        _spec(bandwidth, window, method, iterations, kernel, activation_kernel, distance, normalize, numbers),
        torch.get_num_threads(),
        _dense(offset),
        _dense(scale),
        _dense(shift),
    )
    return out_pose, out_activation


@torch.library.custom_op("torchcaps::route_backward", mutates_args=(), device_types="cpu")
def route_backward(
    grad_pose: Tensor,
    grad_activation: Tensor,
    pose: Tensor,
    activation: Tensor,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    bandwidth: Tensor,
    offset: Tensor | None,
    out_pose: Tensor,
    out_activation: Tensor,
    window: list[int],
    method: str,
    iterations: int,
    kernel: str,
    activation_kernel: str,
    distance: str,
    normalize: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the first six tensors of :func:`route`; the votes are made again from the inputs."""
    inputs = _as_the_core_reads(pose, activation, weight, first, second)
    gradients = _new_gradients(pose, activation, weight, first, second, bandwidth)
    core.backward(
        *inputs,
        out_pose.detach(),
        out_activation.detach(),
        grad_pose.detach().contiguous(),
        grad_activation.detach().contiguous(),
        *(gradient.permute(0, 2, 3, 1) for gradient in gradients[:2]),
        *gradients[2:],
        _spec(bandwidth, window, method, iterations, kernel, activation_kernel, distance, normalize, numbers),
        torch.get_num_threads(),
        _dense(offset),
    )
    return gradients


def _spec(
    bandwidth: Tensor,
    window: list[int],
    method: str,
    iterations: int,
    kernel: str,
    activation_kernel: str,
    distance: str,
    normalize: str,
    numbers: list[float],
) -> Any:
    kh, kw, sh, sw, ph, pw = window
    return core.Spec(
        kernel_size=(kh, kw),
        stride=(sh, sw),
        padding=(ph, pw),
        method=method,
        iterations=iterations,
        kernel=kernel,
        activation_kernel=activation_kernel,
        distance=distance,
        normalize=normalize,
        bandwidth=bandwidth.item(),
        **dict(zip(NUMBERS, numbers, strict=True)),
    )


def why_not(**tensors: Tensor | None) -> str | None:
    """Why the core cannot serve a call with such tensors, or None where it can."""
    if core is None:
        return MISSING
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            return f"the native core runs on the CPU; device of {name}: {tensor.device}"
        if tensor is not None and tensor.dtype != torch.float32:
            return f"the native core computes in float32; type of {name}: {tensor.dtype}"
    if is_transformed():
        return "the native core has no rules for torch.func transforms and forward-mode derivatives"
    if torch._C._get_tracing_state():
        return "the native core's operators cannot be traced by torch.jit"
    return None


def is_transformed() -> bool:
    """Whether torch.func transforms or forward-mode derivatives are at work, for which the operators have no rules."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def rows(maps: Tensor) -> Tensor:
    """``[B, C, H, W]`` -> ``[B, H, W, C]``, dense, as the core reads maps; no copy where they are channels-last."""
    return maps.detach().contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)


def _as_the_core_reads(pose: Tensor, activation: Tensor, *parameters: Tensor) -> list[Tensor]:
    return [rows(pose), rows(activation), *(p.detach().contiguous() for p in parameters)]


def _dense(numbers: Tensor | None) -> Tensor | None:
    return None if numbers is None else numbers.detach().contiguous()


def _new_outputs(pose: Tensor, weight: Tensor, window: list[int]) -> tuple[Tensor, Tensor]:
    kh, kw, sh, sw, ph, pw = window
    size = Window((kh, kw), (sh, sw), (ph, pw)).output_size(pose.shape[2], pose.shape[3])
    outputs = weight.shape[1]
    return pose.new_empty(pose.shape[0], *size, POSE_SIZE * outputs), pose.new_empty(pose.shape[0], *size, outputs)


def _new_gradients(
    pose: Tensor, activation: Tensor, weight: Tensor, first: Tensor, second: Tensor, bandwidth: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    def like_map(maps: Tensor) -> Tensor:
        return torch.empty_like(maps, memory_format=torch.channels_last)

    def like(parameter: Tensor) -> Tensor:
        return torch.empty_like(parameter, memory_format=torch.contiguous_format)

    return like_map(pose), like_map(activation), like(weight), like(first), like(second), like(bandwidth)


@route.register_fake
def _(pose: Tensor, activation: Tensor, weight: Tensor, *rest: Any) -> Any:
    return _new_outputs(pose, weight, rest[4])


@route_affine.register_fake
def _(pose: Tensor, activation: Tensor, weight: Tensor, *rest: Any) -> Any:
    return _new_outputs(pose, weight, rest[6])


@route_backward.register_fake
def _(grad_pose: Tensor, grad_activation: Tensor, *inputs: Any) -> Any:
    return _new_gradients(*inputs[:6])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.options = inputs[7:]


def _gradients(ctx: Any, grad_pose: Tensor, grad_activation: Tensor) -> tuple[Any, ...]:
    gradients = route_backward(grad_pose, grad_activation, *ctx.saved_tensors, *ctx.options)
    return (*gradients, None, *(None for _ in ctx.options))


def no_second_gradient(ctx: Any, *gradients: Tensor) -> Any:
    """The gradient of an operator that is a gradient."""
    raise NotImplementedError(
        "the native core has no second derivatives: "
        'run the forward pass under torchcaps.use_backend("reference") to differentiate twice'
    )


route.register_autograd(_gradients, setup_context=_save)
route_backward.register_autograd(no_second_gradient)
