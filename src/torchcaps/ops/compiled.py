"""``torch.compile`` of the reference, for devices that the native core does not cover."""

import os
import shutil
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.registry import Parameters, RoutingMethod
from torchcaps.ops import native, reference
from torchcaps.ops.triton import available
from torchcaps.ops.window import Window
from torchcaps.types import Affine, Capsules, Routed

# One compiled function serves every layer and option, and each combination is a compilation of its own.
_MOST_COMPILATIONS = 256
COMPILERS = ("g++", "clang++", "c++")


def why_not(device: torch.device) -> str | None:
    """Why ``torch.compile`` cannot serve on a device, or None where it can."""
    if device.type == "cpu" and not any(shutil.which(name) for name in (os.environ.get("CXX"), *COMPILERS) if name):
        return f"torch.compile needs a C++ compiler, and none of {', '.join(COMPILERS)} was found"
    if device.type == "cuda" and available.ABSENT:
        return f"torch.compile needs triton on a GPU, and {available.ABSENT}"
    if device.type == "cuda" and native.is_transformed():
        return "torch.compile has no rules for torch.func transforms and forward-mode derivatives"
    return None


@cache
def _compiled() -> Any:
    return torch.compile(reference.route_map)


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
) -> Routed:
    """The twin of :func:`torchcaps.ops.reference.route_map`; a new batch size is no new compilation."""
    arguments: dict[str, Any] = {"window": window, "method": method, "options": options}
    arguments |= {"vote_offset": vote_offset, "affine": affine}
    if torch.compiler.is_compiling():  # it becomes a part of the larger graph
        return reference.route_map(capsules, weight, parameters, **arguments)
    if capsules.pose.shape[0] > 1:  # 0 and 1 are always compiled apart
        capsules = Capsules(*(maps.view_as(maps) for maps in capsules))  # the mark is not for the caller's tensors
        for maps in capsules:
            torch._dynamo.mark_dynamic(maps, 0)
    # Only the batch size is dynamic: sizes of maps and numbers of capsules are worth a compilation of their own.
    with torch._dynamo.config.patch(recompile_limit=_MOST_COMPILATIONS, automatic_dynamic_shapes=False):
        routed: Routed = _compiled()(capsules, weight, parameters, **arguments)
    return routed
