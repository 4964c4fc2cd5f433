"""Routing-by-agreement of Sabour, Frosst and Hinton, "Dynamic routing between capsules" (NeurIPS 2017)."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.checks import check_iterations, check_votes
from torchcaps.functional.registry import Parameters, Start, register_routing
from torchcaps.types import Routed


def agreement(votes: Tensor, *, iterations: int = 3) -> Routed:
    """Routing-by-agreement: poses are squashed sums of votes, and their length is the activation.

    Shapes: votes ``[..., I, J, D]`` -> pose ``[..., J, D]``, activation ``[..., J]``, coupling ``[..., I, J]``.

    >>> import torch
    >>> agreement(torch.randn(6, 3, 16)).activation.max() < 1
    tensor(True)
    """
    check_votes(votes, None)
    check_iterations(iterations)
    b = torch.zeros_like(votes[..., 0])  # [..., I, J]
    for iteration in range(iterations):
        coupling = torch.softmax(b, dim=-1)
        s = (coupling.unsqueeze(-1) * votes).sum(-3)  # [..., J, D]
        pose = squash(s)
        if iteration + 1 < iterations:
            b = b + (votes * pose.unsqueeze(-3)).sum(-1)
    square = s.square().sum(-1)  # [..., J]
    return Routed(pose, square / (1 + square), coupling)


def squash(s: Tensor) -> Tensor:
    """Shorten vectors ``[..., D]`` to below length 1: |s|^2 / (1 + |s|^2) times the direction of s."""
    length: Tensor = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s * (length / (1 + length.square()))


def no_parameters(outputs: int, size: int) -> dict[str, Start]:
    """For a method that learns nothing but the transformation matrices."""
    return {}


@register_routing(
    "agreement",
    label="routing-by-agreement",
    algorithm=agreement,
    parameters=no_parameters,
    check=check_iterations,
    uses_activation=False,
)
def route_agreement(votes: Tensor, activation: Tensor, parameters: Parameters, **options: Any) -> Routed:
    """Routing-by-agreement; it has no use for the input activations."""
    return agreement(votes, **options)
