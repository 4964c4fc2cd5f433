"""A routing method in a file of its own, as CONTRIBUTING.md describes it: votes count by their angle to the pose."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from torchcaps.functional.checks import check_iterations, check_number, check_votes
from torchcaps.functional.registry import Parameters, Start, register_routing
from torchcaps.functional.weights import log_softmax_outputs, relative_weights, weighted_mean
from torchcaps.types import Routed


def cosine(votes: Tensor, activation: Tensor, gain: Tensor, *, iterations: int = 2, sharpness: float = 4.0) -> Routed:
    """r' = softmax_j(sharpness cos(u_ij, v_j)), v_j the mean under r' a, and a_j = softmax_j(gain_j |v_j|^2).

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]``, gain ``[J]`` -> pose ``[..., J, D]``, activation
    ``[..., J]``, coupling ``[..., I, J]``.
    """
    check_votes(votes, activation)
    check_options(iterations, sharpness)
    logit = torch.zeros_like(votes[..., 0])  # [..., I, J]
    pose = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    for iteration in range(iterations):
        log_coupling = log_softmax_outputs(logit)
        pose = weighted_mean(votes, relative_weights(log_coupling, activation), pose)
        if iteration + 1 < iterations:
            logit = sharpness * cosine_similarity(votes, pose.unsqueeze(-3), dim=-1)
    return Routed(pose, torch.softmax(gain * pose.square().sum(-1), dim=-1), log_coupling.exp())


def check_options(iterations: int, sharpness: float) -> None:
    """Raise for an option of :func:`cosine` that it cannot use."""
    check_iterations(iterations)
    check_number("sharpness", sharpness)


def parameters(outputs: int, size: int) -> dict[str, Start]:
    """What the method learns for J outputs of size D."""
    return {"gain": Start((outputs,), 1.0)}


@register_routing("cosine", label="cosine", algorithm=cosine, parameters=parameters, check=check_options)
def route(votes: Tensor, activation: Tensor, parameters: Parameters, **options: Any) -> Routed:
    """By cosines."""
    return cosine(votes, activation, parameters["gain"], **options)
