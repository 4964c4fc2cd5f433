"""Algorithm 2: fast routing based on expectation maximisation."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.activation import activate, check_density_options, density_parameters
from torchcaps.functional.checks import check_bandwidth, check_iterations, check_votes
from torchcaps.functional.distances import Distance, resolve_distance, scaled_distance
from torchcaps.functional.kernels import Kernel, log_value, resolve_kernel
from torchcaps.functional.registry import Parameters, register_routing
from torchcaps.functional.weights import (
    Normalize,
    log_mean_inputs,
    log_softmax_outputs,
    relative_weights,
    weighted_mean,
)
from torchcaps.types import Clusters, Routed


def frem(
    votes: Tensor,
    activation: Tensor,
    *,
    iterations: int = 2,
    kernel: str | Kernel = "epanechnikov",
    distance: str | Distance = "l1",
    normalize: Normalize = "softmax",
    bandwidth: float | Tensor = 1.0,
) -> Clusters:
    """FREM: the expectation of r is the mixture coefficient times the kernel.

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]`` -> pose ``[..., J, D]``, coupling ``[..., I, J]``.
    Activations are numbers from 0 on; 0 is a capsule without a vote.

    With the paper's unclipped kernel and a distance above 1, k is negative and a larger pi_j *lowers* r.
    A bandwidth that is a tensor ``[]`` gets a gradient.

    >>> import torch
    >>> pose, coupling = frem(torch.randn(6, 3, 16), torch.rand(6))
    >>> pose.shape, coupling.shape
    (torch.Size([3, 16]), torch.Size([6, 3]))
    """
    check_votes(votes, activation)
    check_iterations(iterations)
    check_bandwidth(bandwidth)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)

    logit = torch.zeros_like(votes[..., 0])  # [..., I, J]; any constant gives r' = 1 / J
    pose = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    for iteration in range(iterations):
        # 1. r' = softmax_j(logit)
        log_coupling = log_softmax_outputs(logit)  # [..., I, J]
        # 2. v_j = sum_i r' a u / sum_i r' a
        pose = weighted_mean(votes, relative_weights(log_coupling, activation), pose)
        if iteration + 1 < iterations:
            # 3. pi_j = sum_i r' / sum_ij r', which is the mean over i, as r' sums to 1 over j
            # 4. r_ij = pi_j k(d); the next step 1 takes its softmax, or r / sum_j r = softmax_j(log r)
            x = scaled_distance(d, votes, pose, bandwidth)  # [..., I, J]
            if normalize == "softmax":
                pi = log_coupling.exp().mean(-2, keepdim=True)  # [..., 1, J]
                logit = pi * k.value(x)
            else:
                log_pi = log_mean_inputs(log_coupling)  # [..., 1, J]
                logit = log_pi + log_value(k, x)
    return Clusters(pose, log_coupling.exp())


@register_routing(
    "frem",
    label="FREM",
    algorithm=frem,
    parameters=density_parameters,
    check=check_density_options,
    native=("beta", "beta0"),
)
def route_frem(
    votes: Tensor,
    activation: Tensor,
    parameters: Parameters,
    *,
    activation_kernel: str | Kernel | None = None,
    activation_bandwidth: float | None = None,
    **options: Any,
) -> Routed:
    """FREM with the activation of eq. 8, which may have a kernel and a bandwidth of its own."""
    clusters = frem(votes, activation, **options)
    options |= {"activation_kernel": activation_kernel, "activation_bandwidth": activation_bandwidth}
    return activate(votes, activation, clusters, parameters, **options)
