"""Eq. 3, the weighted density that FRMS and FREM climb, and its course over the iterations."""

from typing import Any

from torch import Tensor

from torchcaps.functional.checks import check_number, check_shapes, check_votes
from torchcaps.functional.distances import Distance, resolve_distance, scaled_distance
from torchcaps.functional.kernels import Kernel, resolve_kernel
from torchcaps.functional.registry import Parameters, routing_method
from torchcaps.functional.weights import Normalize
from torchcaps.types import Routed


def objective(
    votes: Tensor,
    activation: Tensor,
    pose: Tensor,
    coupling: Tensor,
    *,
    kernel: str | Kernel = "epanechnikov",
    distance: str | Distance = "l1",
    normalize: Normalize = "softmax",
    bandwidth: float = 1.0,
) -> Tensor:
    """f(v, r) = 1/I sum_j sum_i r'_ij a_i k(d(v_j, u_ij)), with z_k = 1.

    Shapes: votes ``[..., I, J, D]``, activation ``[..., I]``, pose ``[..., J, D]``, coupling ``[..., I, J]`` ->
    ``[...]``.
    """
    check_votes(votes, activation)
    check_number("bandwidth", bandwidth)
    check_shapes(votes, pose=pose, coupling=coupling)
    k, d = resolve_kernel(kernel, normalize), resolve_distance(distance)
    x = scaled_distance(d, votes, pose, bandwidth)  # [..., I, J]
    return (coupling * activation.unsqueeze(-1) * k.value(x)).sum((-2, -1)) / votes.shape[-3]


def trace_routing(
    name: str, votes: Tensor, activation: Tensor, parameters: Parameters, *, iterations: int, **options: Any
) -> list[Routed]:
    """The results after 1, 2, ... ``iterations`` iterations; t iterations are the start of t + 1.

    >>> import torch
    >>> votes, activation = torch.randn(6, 3, 16), torch.rand(6)
    >>> beta = {"beta": torch.ones(3, 16), "beta0": torch.zeros(3)}
    >>> trace = trace_routing("frem", votes, activation, beta, iterations=4)
    >>> [objective(votes, activation, routed.pose, routed.coupling).shape for routed in trace]
    [torch.Size([]), torch.Size([]), torch.Size([]), torch.Size([])]
    """
    route = routing_method(name).route
    return [route(votes, activation, parameters, iterations=t, **options) for t in range(1, iterations + 1)]
