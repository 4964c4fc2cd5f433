"""EM routing of Hinton, Sabour and Frosst, "Matrix capsules with EM routing" (ICLR 2018)."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from torchcaps.functional.checks import check_iterations, check_number, check_shapes, check_votes
from torchcaps.functional.registry import Parameters, Start, register_routing
from torchcaps.functional.weights import relative_weights, weighted_mean
from torchcaps.types import Routed


def em(
    votes: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    *,
    iterations: int = 2,
    final_lambda: float = 0.01,
    lambda_decay: float = 0.95,
    variance_floor: float = 1e-8,
) -> Routed:
    """EM routing: Gaussian clusters with a variance for each dimension, and the activation as their prior.

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]``, beta_u and beta_a ``[J]`` -> pose ``[..., J, D]``,
    activation ``[..., J]``, and as coupling ``[..., I, J]`` the r that the last M step used.
    Input activations are numbers from 0 on; 0 is a capsule without a vote.

    The inverse temperature of iteration t (from 0) is ``final_lambda * (1 - lambda_decay ** (t + 1))``. A variance
    below ``variance_floor`` (of one vote, or of votes that agree exactly) counts as the floor.

    >>> import torch
    >>> em(torch.randn(6, 3, 16), torch.rand(6), torch.zeros(3), torch.zeros(3)).activation.shape
    torch.Size([3])
    """
    check_votes(votes, activation)
    check_shapes(votes, beta_u=beta_u, beta_a=beta_a)
    check_em_options(iterations, final_lambda, lambda_decay, variance_floor)

    log_r = torch.full_like(votes[..., 0], -math.log(votes.shape[-2]))  # [..., I, J]
    mean = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    variance = torch.ones_like(mean)
    for iteration in range(iterations):
        # M step
        weight = relative_weights(log_r, activation)  # [..., I, J]
        mean = weighted_mean(votes, weight, mean)
        variance = weighted_variance(votes, mean, weight, variance, variance_floor)  # [..., J, D]
        mass = (log_r.exp() * activation.unsqueeze(-1)).sum(-2)  # [..., J]
        cost = (beta_u.unsqueeze(-1) + variance.log() / 2).sum(-1) * mass  # [..., J]
        inverse_temperature = final_lambda * (1 - lambda_decay ** (iteration + 1))
        logit = inverse_temperature * (beta_a - cost)  # [..., J]
        if iteration + 1 < iterations:
            # E step
            log_p = log_gaussian(votes, mean, variance)  # [..., I, J]
            log_r = torch.log_softmax(logsigmoid(logit).unsqueeze(-2) + log_p, dim=-1)
    return Routed(mean, torch.sigmoid(logit), log_r.exp())


def check_em_options(iterations: int, final_lambda: float, lambda_decay: float, variance_floor: float) -> None:
    """Raise for an option of :func:`em` that it cannot use."""
    check_iterations(iterations)
    check_number("final_lambda", final_lambda, positive=False)
    check_number("lambda_decay", lambda_decay, positive=False)
    check_number("variance_floor", variance_floor)


def weighted_variance(votes: Tensor, mean: Tensor, weight: Tensor, otherwise: Tensor, floor: float) -> Tensor:
    """Variance of the votes about their mean in each dimension, at least ``floor``: ``[..., J, D]``."""
    return weighted_mean((votes - mean.unsqueeze(-3)).square(), weight, otherwise).clamp(min=floor)


def log_gaussian(votes: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(u_ij; mean_j, variance_j), ``[..., I, J]``."""
    mean, variance = mean.unsqueeze(-3), variance.unsqueeze(-3)  # [..., 1, J, D]
    return -((votes - mean).square() / variance + (2 * math.pi * variance).log()).sum(-1) / 2


def em_log_likelihood(votes: Tensor, activation: Tensor, routed: Routed, *, variance_floor: float = 1e-8) -> Tensor:
    """What EM routing climbs: the mean over i of a_i log sum_j p_j N(u_ij; pose_j, variance_j), ``[...]``.

    p_j are the output activations, normalised over j; the variance is that of the M step which gave ``routed``.
    """
    check_votes(votes, activation)
    check_shapes(votes, **routed._asdict())
    weight = routed.coupling * activation.unsqueeze(-1)  # [..., I, J]
    variance = weighted_variance(votes, routed.pose, weight, torch.ones_like(routed.pose), variance_floor)
    present = routed.activation.clamp(min=torch.finfo(votes.dtype).tiny)  # a prior of 0 in all of them is none at all
    prior = present.log() - present.sum(-1, keepdim=True).log()  # [..., J]
    log_p = torch.logsumexp(prior.unsqueeze(-2) + log_gaussian(votes, routed.pose, variance), dim=-1)  # [..., I]
    return (activation * log_p).mean(-1)


def em_parameters(outputs: int, size: int) -> dict[str, Start]:
    """beta_u, the cost of a capsule's votes, and beta_a, the cost of leaving it inactive."""
    return {"beta_u": Start((outputs,), 0.0), "beta_a": Start((outputs,), 0.0)}


@register_routing(
    "em", label="EM", algorithm=em, parameters=em_parameters, check=check_em_options, native=("beta_u", "beta_a")
)
def route_em(votes: Tensor, activation: Tensor, parameters: Parameters, **options: Any) -> Routed:
    """EM routing."""
    return em(votes, activation, parameters["beta_u"], parameters["beta_a"], **options)
