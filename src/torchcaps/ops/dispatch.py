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
from torchcaps.ops.backend import choose, requested_backend
from torchcaps.ops.window import Window
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
    without it. Where no gradient is recorded, the native core writes it along with the poses.
    """
    if method.uses_activation:
        check_not_negative(capsules.activation)
    why_not = {
        "native": lambda: why_not_native(capsules, method, options, vote_offset),
        "compiled": lambda: compiled.why_not(capsules.pose.device),
    }
    backend = choose("routing", why_not)
    if backend == "native":
        full = {**method.options, **options}
        return _route_natively(capsules, weight, parameters, window, method, full, affine)
    if native.core is None and requested_backend("routing") == "auto" and not torch.compiler.is_compiling():
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


def why_not_native(
    capsules: Capsules, method: RoutingMethod, options: Mapping[str, Any], vote_offset: Tensor | None
) -> str | None:
    """Why the native core cannot serve a call, or None where it can."""
    full = {**method.options, **options}
    if method.native is None and native.core is not None:
        return f"the native core routes by {', '.join(list_routings(native=True))}, not by {method.name}"
    if reason := native.why_not(capsules=capsules.pose):
        return reason
    if vote_offset is not None:
        return "the native core has no coordinate addition"
    for name in ("kernel", "activation_kernel"):
        if full.get(name) is not None and native_kernel(full[name]) is None:
            return f"the native core has the kernels epanechnikov and gaussian, not {name}={full[name]!r}"
    if "distance" in full and full["distance"] not in NATIVE_DISTANCES:
        return f"the native core has the distances {' and '.join(NATIVE_DISTANCES)}, not {full['distance']!r}"
    return None


def native_kernel(kernel: Any) -> str | None:
    """What the core calls a kernel (it reads the plain names as we do); None for one that it does not have."""
    if type(kernel) is Epanechnikov:  # a subclass may be another kernel
        return "epanechnikov-clipped" if kernel.clipped else "epanechnikov-unclipped"
    if type(kernel) is Gaussian:
        return "gaussian"
    return kernel if isinstance(kernel, str) else None


def _route_natively(
    capsules: Capsules,
    weight: Tensor,
    parameters: Parameters,
    window: Window,
    method: RoutingMethod,
    options: Mapping[str, Any],
    affine: Affine | None,
) -> tuple[Tensor, Tensor]:
    if "activation_kernel" in options:
        kernel, number = activation_density(**options)
        options = {**options, "activation_kernel": kernel, "activation_bandwidth": number}
    bandwidth = options.get("bandwidth", 1.0)
    bandwidth = bandwidth.to(weight.dtype) if isinstance(bandwidth, Tensor) else weight.new_full((), bandwidth)
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
        pose, activation = native.route_affine(*tensors, *affine, *how)
        return pose.unflatten(-1, (-1, POSE_SIZE)), activation
    pose, activation = native.route(*tensors, *how)
    pose = pose.unflatten(-1, (-1, POSE_SIZE))
    return pose if affine is None else reference.transformed(pose, affine), activation


def _records_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


@cache
def warn_of_missing_core() -> None:
    """Once in a process: routing works, but slowly."""
    warnings.warn(
        f"{native.MISSING}. Routing uses plain PyTorch meanwhile, which is far slower (docs/performance.md)",
        stacklevel=2,
    )
