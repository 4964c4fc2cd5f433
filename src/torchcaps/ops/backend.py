"""Which implementation serves an operation: the one place where that is chosen."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from torchcaps.errors import OptionError, UserError

Backend = Literal["auto", "native", "triton", "compiled", "reference"]
BACKENDS = ("auto", "native", "triton", "compiled", "reference")
AUTO = ("native",)  # what "auto" tries on the CPU, in this order, before the reference
AUTO_ON_GPU = ("triton", "compiled")
VARIABLE = "TORCHCAPS_BACKEND"

Operation = Literal["routing", "primary", "residual"]
OPERATIONS: tuple[Operation, ...] = ("routing", "primary", "residual")

_requested: dict[Operation, str] = dict.fromkeys(OPERATIONS, os.environ.get(VARIABLE, "auto"))


class BackendUnavailableError(UserError, RuntimeError):
    """A backend was asked for by name, and cannot serve."""


def requested_backend(operation: Operation = "routing") -> str:
    """The backend asked for by :class:`use_backend` or the environment variable ``TORCHCAPS_BACKEND``."""
    name = _requested[operation]
    if name not in BACKENDS:
        raise OptionError(f"{VARIABLE}={name!r}: expected one of {', '.join(BACKENDS)}")
    return name


def choose(operation: Operation, why_not: Mapping[str, Callable[[], str | None]], auto: Sequence[str] = AUTO) -> str:
    """The backend that serves a call of an operation.

    ``why_not`` has an entry for each backend with an implementation of its own of the operation: why that cannot serve
    this call, or None where it can. Without an entry plain PyTorch serves, whichever backend is requested. ``auto`` are
    the backends that "auto" tries, in this order.
    """
    requested = requested_backend(operation)
    if requested == "auto":
        for name in auto:
            if name in why_not and why_not[name]() is None:
                return name
        return "reference"
    if requested not in why_not:
        return "reference"
    if reason := why_not[requested]():
        raise BackendUnavailableError(f'use_backend("{requested}"): {reason}; "reference" serves every call')
    return requested


class use_backend:  # noqa: N801 - reads as the function that it also is
    """Choose the implementation of routing, primary head and residual block, from now on or for a ``with`` block.

    - ``"native"``: the fused C++ core, which never stores the votes; float32 on the CPU.
    - ``"triton"``: fused Triton kernels, which never store the votes either; float32, bfloat16 and float16 on GPUs, and
      on the CPU in Triton's interpreter (``TRITON_INTERPRET=1``). Routing only; plain PyTorch serves the others.
    - ``"compiled"``: ``torch.compile`` of the reference, for what the kernels do not cover (GPUs: untested). Routing
      only.
    - ``"reference"``: plain PyTorch, any device and type, any kernel and distance.
    - ``"auto"`` (the default): on the CPU native where it can serve, on GPUs triton or else compiled; otherwise the
      reference.

    ``routing``, ``primary`` and ``residual`` choose for that operation alone. The choice holds for the whole process,
    all of its threads included. A backend asked for by name that lacks a type, device or option raises
    :class:`BackendUnavailableError` and says why; where it could serve but would be slower, plain PyTorch does.

    >>> with use_backend("native", residual="reference"):
    ...     requested_backend("routing"), requested_backend("residual")
    ('native', 'reference')
    """

    def __init__(
        self,
        name: Backend,
        *,
        routing: Backend | None = None,
        primary: Backend | None = None,
        residual: Backend | None = None,
    ) -> None:
        chosen = {"routing": routing or name, "primary": primary or name, "residual": residual or name}
        for of in (name, *chosen.values()):
            if of not in BACKENDS:
                raise ValueError(f"use_backend({of!r}): expected one of {', '.join(BACKENDS)}")
        self._chosen: dict[Operation, str] = {operation: chosen[operation] for operation in OPERATIONS}
        self._before = _replaced_by(self._chosen)

    def __enter__(self) -> Self:
        _replaced_by(self._chosen)  # again: the same object may open several blocks
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _replaced_by(self._before)


def _replaced_by(requested: dict[Operation, str]) -> dict[Operation, str]:
    global _requested
    before, _requested = _requested, requested
    return before
