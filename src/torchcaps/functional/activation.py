"""Eq. 8: the activation of a capsule is the density that routing found at its pose."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.checks import check_bandwidth, check_iterations, check_number, check_shapes, check_votes
from torchcaps.functional.distances import Distance, resolve_distance, scaled_distance
from torchcaps.functional.kernels import Kernel, resolve_kernel
from torchcaps.functional.registry import Parameters, Start
from torchcaps.functional.weights import Normalize
from torchcaps.types import Clusters, Routed


def capsule_activation(
    votes: Tensor,
    activation: Tensor,
    coupling: Tensor,
    pose: Tensor,
    beta: Tensor,
    beta0: Tensor,
    *,
    kernel: str | Kernel = "epanechnikov",
    distance: str | Distance = "l1",
    normalize: Normalize = "softmax",
    bandwidth: float = 1.0,
) -> Tensor:
    """a_j = softmax_j( sum_i r'_ij a_i k( (d(u_ij, beta_j v_j) + beta0_j) / h ) ).

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]``, coupling ``[..., I, J]``, pose ``[..., J, D]``,
    beta ``[J, D]``, beta0 ``[J]`` -> ``[..., J]``. The input activations are numbers from 0 on.

    >>> import torch
    >>> votes, a = torch.randn(6, 3, 16), torch.rand(6)
    >>> coupling, pose = torch.full((6, 3), 1 / 3), votes.mean(0)
    >>> capsule_activation(votes, a, coupling, pose, torch.ones(3, 16), torch.zeros(3)).shape
    torch.Size([3])
    """
    check_votes(votes, activation)
    check_number("bandwidth", bandwidth)
    check_shapes(votes, coupling=coupling, pose=pose, beta=beta, beta0=beta0)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)
    x = scaled_distance(d, votes, beta * pose, bandwidth) + beta0 / bandwidth  # [..., I, J]
    density = (coupling * activation.unsqueeze(-1) * k.value(x)).sum(-2)  # [..., J]
    return torch.softmax(density, dim=-1)


def density_parameters(outputs: int, size: int) -> dict[str, Start]:
    """beta and beta0 of eq. 8; at 1 and 0 the activation is the density itself."""
    return {"beta": Start((outputs, size), 1.0), "beta0": Start((outputs,), 0.0)}


def activation_density(
    *,
    activation_kernel: str | Kernel | None,
    activation_bandwidth: float | None,
    kernel: str | Kernel = "epanechnikov",
    normalize: Normalize = "softmax",
    bandwidth: float | Tensor = 1.0,
    **_of_the_clustering: object,
) -> tuple[Kernel, float]:
    """The kernel and the bandwidth of eq. 8: its own, or else those of the couplings.

    Eq. 8 has no normalisation, so "epanechnikov" given for it alone is the unclipped kernel. A bandwidth that is a
    tensor is the couplings' alone: without one of its own, eq. 8 then takes 1.
    """
    if activation_kernel is None:
        k = resolve_kernel(kernel, normalize)
    else:
        k = resolve_kernel(activation_kernel, "softmax", name="activation_kernel")
    if activation_bandwidth is None:
        return k, 1.0 if isinstance(bandwidth, Tensor) else bandwidth
    check_number("activation_bandwidth", activation_bandwidth)
    return k, activation_bandwidth


def check_density_options(
    *,
    iterations: int,
    kernel: str | Kernel,
    distance: str | Distance,
    normalize: Normalize,
    bandwidth: float | Tensor,
    activation_kernel: str | Kernel | None,
    activation_bandwidth: float | None,
    step: float = 1.0,
) -> None:
    """Raise for an option of FRMS or FREM, or of their activation, that they cannot use."""
    check_iterations(iterations)
    check_bandwidth(bandwidth)
    check_number("step", step, positive=False)
    resolve_distance(distance)
    resolve_kernel(kernel, normalize)
    activation_density(activation_kernel=activation_kernel, activation_bandwidth=activation_bandwidth)


def activate(
    votes: Tensor,
    activation: Tensor,
    clusters: Clusters,
    parameters: Parameters,
    *,
    distance: str | Distance = "l1",
    **options: Any,
) -> Routed:
    """Complete the clusters of FRMS or FREM, found with the same options, by their activation."""
    kernel, bandwidth = activation_density(**options)
    a = capsule_activation(
        votes,
        activation,
        clusters.coupling,
        clusters.pose,
        parameters["beta"],
        parameters["beta0"],
        kernel=kernel,
        distance=distance,
        bandwidth=bandwidth,
    )
    return Routed(clusters.pose, a, clusters.coupling)
