"""Algorithm 1: fast routing based on mean shift."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.activation import activate, density_parameters
from torchcaps.functional.density import (
    Distance,
    Kernel,
    Normalize,
    check_bandwidth,
    check_number,
    check_votes,
    log_coupling,
    log_slope,
    relative_weights,
    resolve_distance,
    resolve_kernel,
    safe_log,
    scaled_distance,
    weighted_mean,
)
from torchcaps.functional.registry import Parameters, register_routing
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

    Before the first pose exists k' is taken as constant, which makes the first pose the weighted mean.
    A bandwidth that is a tensor ``[]`` gets a gradient.

    >>> import torch
    >>> pose, coupling = frms(torch.randn(2, 6, 3, 16), torch.rand(2, 6), kernel="gaussian")
    >>> pose.shape, coupling.shape
    (torch.Size([2, 3, 16]), torch.Size([2, 6, 3]))
    """
    check_votes(votes, activation, iterations)
    check_bandwidth(bandwidth)
    check_number("step", step, positive=False)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)

    r = torch.full_like(votes[..., 0], 1 / votes.shape[-2])  # [..., I, J]
    pose = torch.zeros_like(votes[..., 0, :, :])  # [..., J, D]
    log_k_slope: Tensor | float = 0.0  # log(-k') at the distance from the pose before, [..., I, J]
    for iteration in range(iterations):
        log_r = log_coupling(r if normalize == "softmax" else safe_log(r), normalize)  # 1.  [..., I, J]
        pose = weighted_mean(votes, relative_weights(log_r + log_k_slope, activation), pose)  # 2.  [..., J, D]
        if iteration + 1 < iterations:
            x = scaled_distance(d, votes, pose, bandwidth)  # [..., I, J]
            r = r + step * activation.unsqueeze(-1) * k.value(x)  # 3.
            log_k_slope = log_slope(k, x)
    return Clusters(pose, log_r.exp())


@register_routing("frms", label="FRMS", algorithm=frms, parameters=density_parameters, native=("beta", "beta0"))
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
