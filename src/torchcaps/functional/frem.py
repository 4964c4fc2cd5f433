"""Algorithm 2: fast routing based on expectation maximisation."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.activation import activate, density_parameters
from torchcaps.functional.density import (
    Distance,
    Kernel,
    Normalize,
    check_bandwidth,
    check_votes,
    log_coupling,
    log_mean_exp_inputs,
    log_value,
    relative_weights,
    resolve_distance,
    resolve_kernel,
    scaled_distance,
    weighted_mean,
)
from torchcaps.functional.registry import Parameters, register_routing
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

    With the paper's unclipped kernel and a distance above 1, k is negative and a larger pi_j *lowers* r.
    A bandwidth that is a tensor ``[]`` gets a gradient.

    >>> import torch
    >>> pose, coupling = frem(torch.randn(6, 3, 16), torch.rand(6))
    >>> pose.shape, coupling.shape
    (torch.Size([3, 16]), torch.Size([6, 3]))
    """
    check_votes(votes, activation, iterations)
    check_bandwidth(bandwidth)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)

    r = torch.zeros_like(votes[..., 0])  # [..., I, J]; any constant has r' = 1 / J
    pose = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    for iteration in range(iterations):
        log_r = log_coupling(r, normalize)  # 1.  [..., I, J]
        pose = weighted_mean(votes, relative_weights(log_r, activation), pose)  # 2.  [..., J, D]
        if iteration + 1 < iterations:
            x = scaled_distance(d, votes, pose, bandwidth)  # [..., I, J]
            if normalize == "softmax":  # 3. and 4.
                r = log_r.exp().mean(-2, keepdim=True) * k.value(x)
            else:
                r = log_mean_exp_inputs(log_r) + log_value(k, x)
    return Clusters(pose, log_r.exp())


@register_routing("frem", label="FREM", algorithm=frem, parameters=density_parameters, native=("beta", "beta0"))
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
