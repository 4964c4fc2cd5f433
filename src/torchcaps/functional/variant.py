"""Algorithm 3: the variant of FRMS with an inner product for a distance. The paper found that it fails when stacked."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.functional.agreement import no_parameters
from torchcaps.functional.checks import check_iterations, check_votes
from torchcaps.functional.registry import Parameters, register_routing
from torchcaps.types import Routed


def frms_variant(votes: Tensor, *, iterations: int = 2) -> Routed:
    """Algorithm 3, with the activation of eq. 10: softmax_j( sum_i r'_ij u_ij . v_j ).

    Shapes: votes ``[..., I, J, D]`` -> pose ``[..., J, D]``, activation ``[..., J]``, coupling ``[..., I, J]``.

    >>> import torch
    >>> round(frms_variant(torch.randn(6, 3, 16)).activation.sum().item(), 4)
    1.0
    """
    check_votes(votes, None)
    check_iterations(iterations)
    r = torch.full_like(votes[..., 0], 1 / votes.shape[-2])  # [..., I, J]
    for iteration in range(iterations):
        coupling = torch.softmax(r, dim=-1)  # 1.
        pose = (coupling.unsqueeze(-1) * votes).sum(-3)  # 2.  [..., J, D]
        if iteration + 1 < iterations:
            r = r + (votes * pose.unsqueeze(-3)).sum(-1)  # 3.
    # sum_i r' u.v is v.v, because v is the same weighted sum of the votes
    return Routed(pose, torch.softmax(pose.square().sum(-1), dim=-1), coupling)


@register_routing(
    "frms_variant",
    label="Algorithm 3",
    algorithm=frms_variant,
    parameters=no_parameters,
    check=check_iterations,
    uses_activation=False,
)
def route_frms_variant(votes: Tensor, activation: Tensor, parameters: Parameters, **options: Any) -> Routed:
    """Algorithm 3; it has no use for the input activations."""
    return frms_variant(votes, **options)
