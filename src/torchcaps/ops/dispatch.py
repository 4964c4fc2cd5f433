"""One call for routing over a map, whichever backend serves it."""

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.activation import activation_density
from torchcaps.functional.checks import check_not_negative
from torchcaps.functional.kernels import Epanechnikov, Gaussian
from torchcaps.functional.registry import Parameters, RoutingMethod, list_routings
from torchcaps.ops import compiled, native, reference
from torchcaps.ops.backend import AUTO, AUTO_ON_GPU, choose, requested_backend
from torchcaps.ops.triton import available, operator
from torchcaps.ops.triton.launch import LaunchError
from torchcaps.ops.window import Window, matrices_of_fields
from torchcaps.types import POSE_SIZE, Affine, Capsules

NATIVE_DISTANCES = ("l1", "l2")


def route_map(
    capsules: Capsules,
    weight: Tensor,
    parameters: Parameters,
    *,
    window: Window,
    method: RoutingMethod,
    options: Mapping[str, Any],
    vote_offset: Tensor | None = None,
    affine: Affine | None = None,
) -> tuple[Tensor, Tensor]:
    """Route every receptive field of a map: pose ``[B, Ho, Wo, J, 16]``, activation ``[B, Ho, Wo, J]``.

    The affine, scale and shift ``[16 J]``, is of the poses that are returned; the activation is that of the poses
    without it. Where no gradient is recorded, native core and Triton kernels write it along with the poses.
    """
    if method.uses_activation:
        check_not_negative(capsules.activation)
    why_not = {
        "native": lambda: why_not_native(capsules, method, options, vote_offset),
        "triton": lambda: why_not_triton(capsules, weight, method, options, vote_offset),
        "compiled": lambda: compiled.why_not(capsules.pose.device),
    }
    device = capsules.pose.device.type
    auto = {"cpu": AUTO, "cuda": AUTO_ON_GPU}.get(device, ())
    backend = choose("routing", why_not, auto)
    full = {**method.options, **options}
    if backend == "native":
        matrices = matrices_of_fields(weight, capsules.activation.shape[1], window)
        return _route_by_operators(native, capsules, matrices, parameters, window, method, full, vote_offset, affine)
    if backend == "triton":
        scale, shift = affine or (None, None)
        others = {"bandwidth": full.get("bandwidth"), "vote_offset": vote_offset, "scale": scale, "shift": shift}
        check_together(capsules, {"weight": weight, **parameters, **others})
        try:
            return _route_by_operators(
                operator, capsules, weight, parameters, window, method, full, vote_offset, affine
            )
        except LaunchError as error:
            if requested_backend("routing") != "auto":
                raise
            available.remember_failure(capsules.pose.device, str(error))
            warnings.warn(f"{error}. Another backend is used instead", stacklevel=2)
        backend = choose("routing", why_not, [name for name in auto if name != "triton"])
    if (
        native.core is None
        and device == "cpu"
        and requested_backend("routing") == "auto"
        and not torch.compiler.is_compiling()
    ):
        warn_of_missing_core()
    route = compiled.route_map if backend == "compiled" else reference.route_map
    routed = route(
        capsules,
        weight,
        parameters,
        window=window,
        method=method,
        options=options,
        vote_offset=vote_offset,
        affine=affine,
    )
    return routed.pose, routed.activation


def takes_half_precision(
    capsules: Capsules,
    weight: Tensor,
    method: RoutingMethod,
    options: Mapping[str, Any],
    vote_offset: Tensor | None,
) -> bool:
    """Whether what serves reads half-precision maps itself, and computes in float32."""
    requested = requested_backend("routing")
    if requested not in ("auto", "triton") or (requested == "auto" and capsules.pose.device.type == "cpu"):
        return False
    return why_not_triton(capsules, weight, method, options, vote_offset) is None


def why_not_triton(
    capsules: Capsules,
    weight: Tensor,
    method: RoutingMethod,
    options: Mapping[str, Any],
    vote_offset: Tensor | None,
) -> str | None:
    """Why the Triton kernels cannot serve a call, or None where they can."""
    return available.why_not(capsules.pose, weight, vote_offset) or why_not_fused("the Triton backend", method, options)


def why_not_native(
    capsules: Capsules, method: RoutingMethod, options: Mapping[str, Any], vote_offset: Tensor | None
) -> str | None:
    """Why the native core cannot serve a call, or None where it can."""
    if method.native is not None or native.core is None:  # what the core lacks is named before what the tensors lack
        if reason := native.why_not(capsules=capsules.pose, vote_offset=vote_offset):
            return reason
        if vote_offset is not None and vote_offset.requires_grad:
            return "the native core takes the offset of votes as a constant, without a gradient"
    return why_not_fused("the native core", method, options)


def why_not_fused(name: str, method: RoutingMethod, options: Mapping[str, Any]) -> str | None:
    """Why the fused code of a backend does not have a method with such options, or None where it does."""
    full = {**method.options, **options}
    if method.native is None:
        return f"{name} routes by {', '.join(list_routings(native=True))}, not by {method.name}"
    for option in ("kernel", "activation_kernel"):
        if full.get(option) is not None and native_kernel(full[option]) is None:
            return f"{name} has the kernels epanechnikov and gaussian, not {option}={full[option]!r}"
    if "distance" in full and full["distance"] not in NATIVE_DISTANCES:
        return f"{name} has the distances {' and '.join(NATIVE_DISTANCES)}, not {full['distance']!r}"
    return None


def native_kernel(kernel: Any) -> str | None:
    """What the core calls a kernel (it reads the plain names as we do); None for one that it does not have."""
    if type(kernel) is Epanechnikov:  # a subclass may be another kernel
        return "epanechnikov-clipped" if kernel.clipped else "epanechnikov-unclipped"
    if type(kernel) is Gaussian:
        return "gaussian"
    return kernel if isinstance(kernel, str) else None


def check_together(capsules: Capsules, others: Mapping[str, Any]) -> None:
    """Raise unless all tensors are on one device: a kernel reads whatever is at an address."""
    device = capsules.pose.device
    for name, value in {"activation": capsules.activation, **others}.items():
        if isinstance(value, Tensor) and value.device != device:
            raise ValueError(f"{name} is on {value.device}, the capsules are on {device}: move one with .to(device)")


def _route_by_operators(
    operators: Any,
    capsules: Capsules,
    weight: Tensor,
    parameters: Parameters,
    window: Window,
    method: RoutingMethod,
    options: Mapping[str, Any],
    vote_offset: Tensor | None,
    affine: Affine | None,
) -> tuple[Tensor, Tensor]:
    """By the operators of the native core or of the Triton kernels, which take the same arguments."""
    if "activation_kernel" in options:
        kernel, number = activation_density(**options)
        options = {**options, "activation_kernel": kernel, "activation_bandwidth": number}
    bandwidth = options.get("bandwidth", 1.0)
    precise = torch.promote_types(weight.dtype, torch.float32)
    bandwidth = (
        bandwidth.to(precise) if isinstance(bandwidth, Tensor) else weight.new_full((), bandwidth, dtype=precise)
    )
    tensors = (*capsules, weight, *(parameters[name] for name in method.native or ()), bandwidth)
    how = (
        [size for pair in window for size in pair],
        method.name,
        options["iterations"],
        native_kernel(options.get("kernel", "epanechnikov")),
        native_kernel(options.get("activation_kernel", "epanechnikov")),
        options.get("distance", "l1"),
        options.get("normalize", "softmax"),
        [float(options.get(name, default)) for name, default in native.NUMBERS.items()],
    )
    if affine is not None and not _records_gradient(*tensors, *affine):
        pose, activation = operators.route_affine(*tensors, vote_offset, *affine, *how)
        return pose.unflatten(-1, (-1, POSE_SIZE)), activation
    pose, activation = operators.route(*tensors, vote_offset, *how)
    pose = pose.unflatten(-1, (-1, POSE_SIZE))
    return pose if affine is None else reference.transformed(pose, affine), activation


def _records_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


@cache
def warn_of_missing_core() -> None:
    """Once in a process: routing works, but slowly."""
    warnings.warn(
        f"{native.MISSING}. Until then, routing uses plain PyTorch, which is much slower (docs/performance.md)",
        stacklevel=2,
    )
