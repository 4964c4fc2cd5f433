"""The distances d(u, v) between a vote and a pose."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Distance = Callable[[Tensor, Tensor], Tensor]


def l1(u: Tensor, v: Tensor) -> Tensor:
    """Sum of absolute differences over the last dimension; the gradient at 0 is 0."""
    return (u - v).abs().sum(-1)


def l2(u: Tensor, v: Tensor) -> Tensor:
    """Sum of squared differences over the last dimension."""
    return (u - v).square().sum(-1)


def inner(u: Tensor, v: Tensor) -> Tensor:
    """1 - u.v, eq. 9."""
    return 1 - (u * v).sum(-1)


@dataclass(frozen=True, eq=False)
class Mahalanobis:
    """(u - v)^T P (u - v) with a precision matrix P ``[D, D]``, or its diagonal ``[D]``."""

    precision: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.precision.shape)
        if len(shape) not in (1, 2) or shape[0] != shape[-1]:
            raise ValueError(f"Mahalanobis: precision has shape {list(shape)}, expected [D] or [D, D]")

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        if self.precision.shape[-1] != u.shape[-1]:
            raise ValueError(
                f"Mahalanobis: precision has shape {list(self.precision.shape)}, for vectors of length {u.shape[-1]}"
            )
        difference = u - v
        precision = self.precision.to(difference)
        weighted = difference * precision if precision.dim() == 1 else difference @ precision.mT
        return (weighted * difference).sum(-1)


DISTANCES: dict[str, Distance] = {"l1": l1, "l2": l2, "inner": inner}


def resolve_distance(distance: str | Distance) -> Distance:
    """The distance of a name, or the user's own function of whole vectors."""
    if callable(distance):
        return distance
    if not isinstance(distance, str) or distance not in DISTANCES:
        raise ValueError(f"distance={distance!r}: expected one of {', '.join(DISTANCES)}, or a function d(u, v)")
    return DISTANCES[distance]


def scaled_distance(distance: Distance, votes: Tensor, pose: Tensor, bandwidth: float | Tensor) -> Tensor:
    """d(u_ij, v_j) / h, the argument of the kernel: ``[..., I, J, D]``, ``[..., J, D]`` -> ``[..., I, J]``."""
    x = distance(votes, pose.unsqueeze(-3))
    if x.shape != votes.shape[:-1]:
        raise ValueError(
            f"distance gave shape {list(x.shape)}, expected {list(votes.shape[:-1])}: "
            "one number for each pair of vectors"
        )
    return x / bandwidth
