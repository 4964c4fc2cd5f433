"""The kernels k(x) of eq. 2, where x is a distance divided by the bandwidth."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from torchcaps.functional.weights import NORMALIZATIONS, Normalize, safe_log

KERNELS = ("epanechnikov", "gaussian")


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


def resolve_kernel(kernel: str | Kernel, normalize: Normalize, *, name: str = "kernel") -> Kernel:
    """The kernel of a name. Softmax lifts the bandwidth restriction, so there "epanechnikov" is not clipped."""
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"normalize={normalize!r}: expected one of {', '.join(NORMALIZATIONS)}")
    if isinstance(kernel, str):
        if kernel == "epanechnikov":
            return Epanechnikov(clipped=normalize == "sum")
        if kernel == "gaussian":
            return Gaussian()
        raise ValueError(f"{name}={kernel!r}: expected one of {', '.join(KERNELS)}, or an object like Epanechnikov()")
    missing = [part for part in ("value", "derivative", "clipped") if not hasattr(kernel, part)]
    if missing:
        raise TypeError(
            f"{name}={kernel!r} has no {', '.join(missing)}: a kernel object has value(x), derivative(x) and clipped"
        )
    return ClippedKernel(kernel) if kernel.clipped and not isinstance(kernel, Epanechnikov | ClippedKernel) else kernel


def log_value(kernel: Kernel, x: Tensor) -> Tensor:
    """log k(x)."""
    own: Callable[[Tensor], Tensor] | None = getattr(kernel, "log_value", None)
    return safe_log(kernel.value(x)) if own is None else own(x)


def log_slope(kernel: Kernel, x: Tensor) -> Tensor:
    """log(-k'(x)), the weight that mean shift gives a sample at distance x."""
    own: Callable[[Tensor], Tensor] | None = getattr(kernel, "log_slope", None)
    return safe_log(-kernel.derivative(x)) if own is None else own(x)
