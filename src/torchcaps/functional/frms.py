"""Algorithm 1: fast routing based on mean shift."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.activation import activate, check_density_options, density_parameters
from torchcaps.functional.checks import check_bandwidth, check_iterations, check_number, check_votes
from torchcaps.functional.distances import Distance, resolve_distance, scaled_distance
from torchcaps.functional.kernels import Kernel, log_slope, resolve_kernel
from torchcaps.functional.registry import Parameters, register_routing
from torchcaps.functional.weights import Normalize, log_softmax_outputs, relative_weights, safe_log, weighted_mean
from torchcaps.types import Clusters, Routed


def frms(
    votes: Tensor,
    activation: Tensor,
    *,
    iterations: int = 2,
    kernel: str | Kernel = "epanechnikov",
    distance: str | Distance = "l1",
    normalize: Normalize = "softmax",
    bandwidth: float | Tensor = 1.0,
    step: float = 1.0,
) -> Clusters:
    """FRMS: poses by mean shift, r by gradient steps of size ``step`` (the paper's alpha).

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]`` -> pose ``[..., J, D]``, coupling ``[..., I, J]``.
    Activations are numbers from 0 on; 0 is a capsule without a vote.

    Before the first pose exists k' is taken as constant, which makes the first pose the weighted mean.
    A bandwidth that is a tensor ``[]`` gets a gradient.

    >>> import torch
    >>> pose, coupling = frms(torch.randn(2, 6, 3, 16), torch.rand(2, 6), kernel="gaussian")
    >>> pose.shape, coupling.shape
    (torch.Size([2, 3, 16]), torch.Size([2, 6, 3]))
    """
    check_votes(votes, activation)
    check_iterations(iterations)
    check_bandwidth(bandwidth)
    check_number("step", step, positive=False)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)

    r = torch.full_like(votes[..., 0], 1 / votes.shape[-2])  # [..., I, J]
    pose = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    log_k_slope: Tensor | float = 0.0  # log(-k') at the distance from the pose before, [..., I, J]
    for iteration in range(iterations):
        # 1. r' = softmax_j(r), or r / sum_j r = softmax_j(log r)
        logit = r if normalize == "softmax" else safe_log(r)
        log_coupling = log_softmax_outputs(logit)  # [..., I, J]
        # 2. v_j = sum_i r' a k'(d) u / sum_i r' a k'(d)
        pose = weighted_mean(votes, relative_weights(log_coupling + log_k_slope, activation), pose)
        if iteration + 1 < iterations:
            # 3. r_ij = r_ij + alpha a_i k(d)
            x = scaled_distance(d, votes, pose, bandwidth)  # [..., I, J]
            r = r + step * activation.unsqueeze(-1) * k.value(x)
            log_k_slope = log_slope(k, x)
    return Clusters(pose, log_coupling.exp())


@register_routing(
    "frms",
    label="FRMS",
    algorithm=frms,
    parameters=density_parameters,
    check=check_density_options,
    native=("beta", "beta0"),
)
def route_frms(
    votes: Tensor,
    activation: Tensor,
    parameters: Parameters,
    *,
    activation_kernel: str | Kernel | None = None,
    activation_bandwidth: float | None = None,
    **options: Any,
) -> Routed:
    """FRMS with the activation of eq. 8, which may have a kernel and a bandwidth of its own."""
    clusters = frms(votes, activation, **options)
    options |= {"activation_kernel": activation_kernel, "activation_bandwidth": activation_bandwidth}
    return activate(votes, activation, clusters, parameters, **options)
