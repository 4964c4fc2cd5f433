"""The fused Triton kernels as PyTorch operators: transformation, all iterations and activation, without storing a vote.

Nothing here imports triton before a kernel is launched.
"""

from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.triton import launch
from torchcaps.ops.triton.how import How
from torchcaps.ops.triton.launch import Call
from torchcaps.ops.triton.table import MANY_INPUTS
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIZE

KERNELS = {"epanechnikov-clipped": "clipped", "epanechnikov-unclipped": "linear", "gaussian": "gaussian"}


@torch.library.custom_op("torchcaps::route_triton", mutates_args=())
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

    As :func:`torchcaps.ops.native.route`, with half-precision maps, vote offsets ``[I, 16]`` (no gradient), and a
    weight ``[n, J, 4, 4]`` that all places of the field share. The outputs have the type of pose and weight together.
    """
    options = (window, method, iterations, kernel, activation_kernel, distance, normalize, numbers)
    call = _call(pose, activation, weight, first, second, bandwidth, offset, *options)
    out = _new_outputs(pose, weight, window)
    launch.forward(call, None, out)
    return out


@torch.library.custom_op("torchcaps::route_triton_affine", mutates_args=())
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
    options = (window, method, iterations, kernel, activation_kernel, distance, normalize, numbers)
    call = _call(pose, activation, weight, first, second, bandwidth, offset, *options)
    for name, value in (("scale", scale), ("shift", shift)):
        _check_shape(name, value, (POSE_SIZE * weight.shape[1],))
    out = _new_outputs(pose, weight, window)
    launch.forward(call, (scale, shift), out)
    return out


@torch.library.custom_op("torchcaps::route_triton_backward", mutates_args=())
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
    window: list[int],
    method: str,
    iterations: int,
    kernel: str,
    activation_kernel: str,
    distance: str,
    normalize: str,
    numbers: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the six tensors of :func:`route`; votes and iterations are made again from the inputs."""
    options = (window, method, iterations, kernel, activation_kernel, distance, normalize, numbers)
    call = _call(pose, activation, weight, first, second, bandwidth, offset, *options)
    by_pose, by_activation, by_weight, by_first, by_second, by_bandwidth = launch.backward(
        call, grad_pose.detach(), grad_activation.detach()
    )
    return by_pose, by_activation, by_weight, by_first, by_second, by_bandwidth


def _call(
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
) -> Call:
    """A call whose every size is checked: a kernel would read what is beyond."""
    kh, kw, sh, sw, ph, pw = window
    activation_bandwidth, step, final_lambda, lambda_decay, variance_floor = numbers
    capsules, outputs = activation.shape[1], weight.shape[1]
    inputs = kh * kw * capsules
    _check_shape("pose", pose, (activation.shape[0], POSE_SIZE * capsules, *activation.shape[2:]))
    rows = capsules if weight.shape[0] == capsules else inputs
    _check_shape("weight", weight, (rows, outputs, 4, 4))
    _check_shape("first parameter", first, (outputs,) if method == "em" else (outputs, POSE_SIZE))
    _check_shape("second parameter", second, (outputs,))
    _check_shape("bandwidth", bandwidth, ())
    if offset is not None:
        _check_shape("vote_offset", offset, (inputs, POSE_SIZE))
    parameters = {"activation": activation, "weight": weight, "first parameter": first, "second parameter": second}
    for name, tensor in (parameters | {"bandwidth": bandwidth}).items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is of type {tensor.dtype}, expected a floating type")
    if iterations < 1:
        raise ValueError(f"iterations: got {iterations}, expected at least 1")
    how = How(
        method=method,
        iterations=iterations,
        kernel=KERNELS[_unclipped_or_not(kernel, normalize)],
        activation_kernel=KERNELS[_unclipped_or_not(activation_kernel, normalize)],
        distance=distance,
        plain=normalize == "sum",
        activation_bandwidth=activation_bandwidth,
        step=step,
        inverse_temperatures=tuple(final_lambda * (1 - lambda_decay ** (t + 1)) for t in range(iterations)),
        variance_floor=variance_floor,
        inputs=capsules,
        outputs=outputs,
        rows=1,
        lanes=1,
        shared=rows != inputs,
        has_offset=offset is not None,
        many_inputs=inputs >= MANY_INPUTS,
    )
    tensors = (pose, activation, weight, first, second, bandwidth, offset)
    return Call(*tensors, Window((kh, kw), (sh, sw), (ph, pw)), how)


def _unclipped_or_not(kernel: str, normalize: str) -> str:
    """The plain name, as :func:`torchcaps.functional.kernels.resolve_kernel` reads it."""
    if kernel == "epanechnikov":
        return "epanechnikov-clipped" if normalize == "sum" else "epanechnikov-unclipped"
    return kernel


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: got shape {list(tensor.shape)}, expected {list(shape)}")


def _new_outputs(pose: Tensor, weight: Tensor, window: list[int]) -> tuple[Tensor, Tensor]:
    kh, kw, sh, sw, ph, pw = window
    size = Window((kh, kw), (sh, sw), (ph, pw)).output_size(pose.shape[2], pose.shape[3])
    outputs, dtype = weight.shape[1], torch.promote_types(pose.dtype, weight.dtype)
    shape = (pose.shape[0], *size)
    return pose.new_empty(*shape, POSE_SIZE * outputs, dtype=dtype), pose.new_empty(*shape, outputs, dtype=dtype)


@route.register_fake
def _(pose: Tensor, activation: Tensor, weight: Tensor, *rest: Any) -> Any:
    return _new_outputs(pose, weight, rest[4])


@route_affine.register_fake
def _(pose: Tensor, activation: Tensor, weight: Tensor, *rest: Any) -> Any:
    return _new_outputs(pose, weight, rest[6])


@route_backward.register_fake
def _(grad_pose: Tensor, grad_activation: Tensor, pose: Tensor, activation: Tensor, *rest: Any) -> Any:
    maps = (torch.empty_like(m, memory_format=torch.channels_last) for m in (pose, activation))
    return *maps, *(torch.empty_like(p, memory_format=torch.contiguous_format) for p in rest[:4])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.options = inputs[7:]


def _gradients(ctx: Any, grad_pose: Tensor, grad_activation: Tensor) -> tuple[Any, ...]:
    gradients = route_backward(grad_pose, grad_activation, *ctx.saved_tensors, *ctx.options)
    return (*gradients, None, *(None for _ in ctx.options))


def _no_second_gradient(ctx: Any, *gradients: Tensor) -> Any:
    raise NotImplementedError(
        "the Triton kernels have no second derivatives: "
        'run the forward pass under torchcaps.use_backend("reference") to differentiate twice'
    )


route.register_autograd(_gradients, setup_context=_save)
route_backward.register_autograd(_no_second_gradient)
