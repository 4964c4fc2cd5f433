"""Weighted kernel density estimation: kernels, distances, and the two steps that FRMS and FREM share.

Couplings and weights are carried as logarithms, so that a softmax or a Gaussian that underflows still leaves the
*ratios* of the weights exact. ``-inf`` stands for a weight of exactly zero.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

Normalize = Literal["softmax", "sum"]

# A capsule whose activation is below this is switched off: the gradient by it, 1 / a of a pose, would leave float32.
SMALLEST_ACTIVATION = 2.0**-100
# Its weight is 0 whatever its logarithm is, but its activation still gets a gradient, which grows with
# exp(log weight - top). The cap keeps that finite; it never touches a result.
_MOST_ABOVE_TOP = 40.0


class Kernel(Protocol):
    """A profile k(x) of eq. 2 as FRMS and FREM use it; ``x`` is a distance already divided by the bandwidth.

    An object may also have ``log_value(x)`` = log k(x) and ``log_slope(x)`` = log(-k'(x)), for kernels that underflow.
    """

    @property
    def clipped(self) -> bool:
        """Whether k and k' are exactly zero from x = 1 on."""

    def value(self, x: Tensor) -> Tensor:
        """k(x), of the same shape as x."""

    def derivative(self, x: Tensor) -> Tensor:
        """k'(x), of the same shape as x; a profile never increases, so it is not positive."""


@dataclass(frozen=True)
class Epanechnikov:
    """k(x) = 1 - x; where clipped, 0 from x = 1 on."""

    clipped: bool = False

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, 1 - x, torch.zeros_like(x)) if self.clipped else 1 - x

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, -1.0, 0.0).to(x.dtype) if self.clipped else torch.full_like(x, -1.0)


@dataclass(frozen=True)
class Gaussian:
    """k(x) = exp(-x / 2)."""

    clipped: ClassVar[bool] = False

    def value(self, x: Tensor) -> Tensor:
        return torch.exp(-x / 2)

    def derivative(self, x: Tensor) -> Tensor:
        return -torch.exp(-x / 2) / 2

    def log_value(self, x: Tensor) -> Tensor:
        return -x / 2

    def log_slope(self, x: Tensor) -> Tensor:
        return -x / 2 - math.log(2)


@dataclass(frozen=True)
class ClippedKernel:
    """A user's kernel that says it is clipped: whatever it computes from x = 1 on counts as 0."""

    kernel: Kernel
    clipped: ClassVar[bool] = True

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, self.kernel.value(x), 0.0)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, self.kernel.derivative(x), 0.0)


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
            raise ValueError(f"Mahalanobis: precision has shape {list(shape)}, wanted [D] or [D, D]")

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
KERNELS = ("epanechnikov", "gaussian")
NORMALIZATIONS = ("softmax", "sum")


def resolve_kernel(kernel: str | Kernel, normalize: Normalize, *, name: str = "kernel") -> Kernel:
    """The kernel of a name. Softmax lifts the bandwidth restriction, so there "epanechnikov" is not clipped."""
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"normalize={normalize!r}: wanted one of {', '.join(NORMALIZATIONS)}")
    if isinstance(kernel, str):
        if kernel == "epanechnikov":
            return Epanechnikov(clipped=normalize == "sum")
        if kernel == "gaussian":
            return Gaussian()
        raise ValueError(f"{name}={kernel!r}: wanted one of {', '.join(KERNELS)}, or an object like Epanechnikov()")
    missing = [name for name in ("value", "derivative", "clipped") if not hasattr(kernel, name)]
    if missing:
        raise TypeError(
            f"{name}={kernel!r} has no {', '.join(missing)}: a kernel object has value(x), derivative(x) and clipped"
        )
    return ClippedKernel(kernel) if kernel.clipped and not isinstance(kernel, Epanechnikov | ClippedKernel) else kernel


def resolve_distance(distance: str | Distance) -> Distance:
    """The distance of a name, or the user's own function of whole vectors."""
    if callable(distance):
        return distance
    if not isinstance(distance, str) or distance not in DISTANCES:
        raise ValueError(f"distance={distance!r}: wanted one of {', '.join(DISTANCES)}, or a function d(u, v)")
    return DISTANCES[distance]


def check_number(name: str, value: float, *, positive: bool = True) -> None:
    """Raise unless an option is a finite number, and above zero where it has to be."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (positive and value <= 0):
        raise ValueError(f"{name}={value!r}: wanted a {'positive, ' if positive else ''}finite number")


def check_bandwidth(bandwidth: float | Tensor) -> None:
    """Raise unless this is a positive, finite number, or a floating-point tensor ``[]`` that holds one."""
    if not isinstance(bandwidth, Tensor):
        return check_number("bandwidth", bandwidth)
    if bandwidth.shape or not bandwidth.is_floating_point():
        raise ValueError(
            f"bandwidth is a {bandwidth.dtype} tensor of shape {list(bandwidth.shape)}: "
            "expected a number, or a floating-point tensor []"
        )
    # elsewhere, looking at the value would stop a device's queue; compiled or transformed, there may be none
    has_value = not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
    if bandwidth.device.type == "cpu" and has_value:
        check_number("bandwidth", bandwidth.detach().item())
    return None


def check_votes(votes: Tensor, activation: Tensor | None, iterations: int) -> None:
    """Raise unless votes are ``[..., I, J, D]``, activations ``[..., I]``, both floating, and there is an iteration."""
    if votes.dim() < 3 or 0 in votes.shape[-3:]:
        raise ValueError(f"votes have shape {list(votes.shape)}, wanted [..., I, J, D] with I, J, D at least 1")
    if not votes.is_floating_point():
        raise TypeError(f"votes are {votes.dtype}, wanted a floating-point type: call .float() on them")
    if activation is not None:
        if activation.shape != votes.shape[:-2]:
            raise ValueError(
                f"activation has shape {list(activation.shape)}, wanted {list(votes.shape[:-2])}: "
                f"one number for each input capsule of votes {list(votes.shape)}"
            )
        if activation.dtype != votes.dtype or activation.device != votes.device:
            raise TypeError(
                f"activation is {activation.dtype} on {activation.device}, votes are {votes.dtype} on {votes.device}: "
                "wanted the same for both"
            )
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations={iterations!r}: wanted a whole number of at least 1")


def scaled_distance(distance: Distance, votes: Tensor, pose: Tensor, bandwidth: float | Tensor) -> Tensor:
    """d(u_ij, v_j) / h, the argument of the kernel: ``[..., I, J, D]``, ``[..., J, D]`` -> ``[..., I, J]``."""
    x = distance(votes, pose.unsqueeze(-3))
    if x.shape != votes.shape[:-1]:
        raise ValueError(
            f"distance gave shape {list(x.shape)}, wanted {list(votes.shape[:-1])}: one number for each pair of vectors"
        )
    return x / bandwidth


def check_shapes(votes: Tensor, **given: Tensor) -> None:
    """Raise unless what goes with votes ``[..., I, J, D]`` has the shape that its name says."""
    lead, (outputs, size) = votes.shape[:-3], votes.shape[-2:]
    shapes = {"coupling": votes.shape[:-1], "pose": (*lead, outputs, size), "activation": (*lead, outputs)}
    shapes |= {"beta": (outputs, size), "beta0": (outputs,), "beta_u": (outputs,), "beta_a": (outputs,)}
    for name, value in given.items():
        if value.shape != shapes[name]:
            raise ValueError(
                f"{name} has shape {list(value.shape)}, wanted {list(shapes[name])} for votes {list(votes.shape)}"
            )


def safe_log(x: Tensor) -> Tensor:
    """log x; -inf with gradient 0 where x is not positive (or so small that 1 / x would overflow)."""
    positive = x >= torch.finfo(x.dtype).tiny
    return torch.where(positive, torch.where(positive, x, 1.0).log(), -torch.inf)


def log_value(kernel: Kernel, x: Tensor) -> Tensor:
    """log k(x)."""
    own: Callable[[Tensor], Tensor] | None = getattr(kernel, "log_value", None)
    return safe_log(kernel.value(x)) if own is None else own(x)


def log_slope(kernel: Kernel, x: Tensor) -> Tensor:
    """log(-k'(x)), the weight that mean shift gives a sample at distance x."""
    own: Callable[[Tensor], Tensor] | None = getattr(kernel, "log_slope", None)
    return safe_log(-kernel.derivative(x)) if own is None else own(x)


def log_coupling(r: Tensor, normalize: Normalize) -> Tensor:
    """Step 1 of Algorithms 1 and 2: log r', the routing weights ``[..., I, J]`` normalised over the outputs j.

    ``r`` are the weights themselves under softmax, and their logarithms under plain normalisation (r / sum r is the
    softmax of log r). A row of zeros becomes uniform.
    """
    if normalize == "sum":
        r = r.masked_fill((r == -torch.inf).all(-1, keepdim=True), 0.0)
    return torch.log_softmax(r, dim=-1)


def log_mean_exp_inputs(log_r: Tensor) -> Tensor:
    """log of the mean over the inputs i, ``[..., I, J] -> [..., 1, J]``: pi_j of Algorithm 2, where r' sums to 1."""
    top = log_r.detach().amax(-2, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    return safe_log((log_r - top).exp().mean(-2, keepdim=True)) + top


def relative_weights(log_weight: Tensor, activation: Tensor) -> Tensor:
    """exp(log weight) a_i up to a factor for each output j that makes the largest one 1: it cancels in a mean.

    Shapes: ``[..., I, J]``, ``[..., I]`` -> ``[..., I, J]``.
    """
    numbers = torch.finfo(activation.dtype)
    off = activation.detach() < max(SMALLEST_ACTIVATION, numbers.tiny)  # [..., I]
    a = activation - activation.detach().masked_fill(~off, 0.0)  # 0 where off, with the gradient that it has there
    a, off = a.unsqueeze(-1), off.unsqueeze(-1)  # [..., I, 1]
    top = (log_weight.detach() + a.detach().log()).masked_fill(off, -torch.inf).amax(-2, keepdim=True)  # [..., 1, J]
    top = top.masked_fill(top == -torch.inf, 0.0)
    above = log_weight - top  # of a capsule that is on, at most -log a
    most = min(_MOST_ABOVE_TOP, math.log(numbers.max) - 1)
    return torch.where(off, above.clamp(max=most), above).exp() * a


def weighted_mean(samples: Tensor, weight: Tensor, otherwise: Tensor) -> Tensor:
    """sum_i w_ij u_ij / sum_i w_ij, or ``otherwise`` where an output's weights are all zero.

    Shapes: ``[..., I, J, D]``, ``[..., I, J]``, ``[..., J, D]`` -> ``[..., J, D]``.
    """
    total = weight.sum(-2).unsqueeze(-1)  # [..., J, 1]
    mean = (weight.unsqueeze(-1) * samples).sum(-3) / torch.where(total > 0, total, 1.0)
    return torch.where(total > 0, mean, otherwise)
