"""Routing over a map in plain PyTorch: gather the fields, make every vote, route. The twin of every faster path."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.registry import Parameters, RoutingMethod
from torchcaps.functional.weights import switched_off
from torchcaps.ops.window import Window, gather_fields, matrices_of_fields
from torchcaps.types import Affine, Capsules, Routed


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
    """Route every receptive field of a map.

    Shapes: weight ``[I, J, 4, 4]``, or ``[n, J, 4, 4]`` where all places of a field share the matrices; vote_offset
    ``[I, 16]`` (added to the votes for every output) -> pose ``[B, Ho, Wo, J, 16]``, activation ``[B, Ho, Wo, J]``,
    coupling ``[B, Ho, Wo, I, J]``. The affine is of the poses that are returned; the activation is that of the poses
    without it.
    """
    capsules = Capsules(capsules.pose, switched_off(capsules.activation))
    pose, activation = gather_fields(capsules, window)  # [B, Ho, Wo, I, 4, 4], [B, Ho, Wo, I]
    weight = matrices_of_fields(weight, capsules.activation.shape[1], window)
    votes = torch.einsum("...iab,ijbc->...ijac", pose, weight).flatten(-2)  # [B, Ho, Wo, I, J, 16]
    if vote_offset is not None:
        votes = votes + vote_offset.unsqueeze(-2)
    routed = method.route(votes, activation, parameters, **options)
    return routed if affine is None else routed._replace(pose=transformed(routed.pose, affine))


def transformed(pose: Tensor, affine: Affine) -> Tensor:
    """``scale * pose + shift`` for poses ``[B, Ho, Wo, J, 16]``."""
    scale, shift = (numbers.reshape(pose.shape[-2:]) for numbers in affine)  # [J, 16]
    return scale * pose + shift
