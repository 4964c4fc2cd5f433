"""Which implementation of routing is used."""

import os
from types import TracebackType
from typing import Literal, Self

from torchcaps.errors import OptionError, UserError

Backend = Literal["auto", "native", "compiled", "reference"]
BACKENDS = ("auto", "native", "compiled", "reference")
VARIABLE = "TORCHCAPS_BACKEND"

_requested: str = os.environ.get(VARIABLE, "auto")


class BackendUnavailableError(UserError, RuntimeError):
    """A backend was asked for by name, and cannot serve."""


def requested_backend() -> str:
    """The backend asked for by :class:`use_backend` or the environment variable ``TORCHCAPS_BACKEND``."""
    if _requested not in BACKENDS:
        raise OptionError(f"{VARIABLE}={_requested!r}: expected one of {', '.join(BACKENDS)}")
    return _requested


class use_backend:  # noqa: N801 - reads as the function that it also is
    """Choose the implementation of routing, from now on or for a ``with`` block.

    - ``"native"``: the fused C++ core, which never stores the votes; float32 on the CPU.
    - ``"compiled"``: ``torch.compile`` of the reference; for devices that the core does not cover (GPUs: untested).
    - ``"reference"``: plain PyTorch, any device and type, any kernel and distance.
    - ``"auto"`` (the default): native where it can serve, otherwise the reference.

    The choice holds for the whole process, all of its threads included.
    A backend asked for by name that cannot serve raises :class:`BackendUnavailableError` and says why.

    >>> with use_backend("reference"):
    ...     requested_backend()
    'reference'
    """

    def __init__(self, name: Backend) -> None:
        global _requested
        if name not in BACKENDS:
            raise ValueError(f"use_backend({name!r}): expected one of {', '.join(BACKENDS)}")
        self._name = name
        self._before, _requested = _requested, name

    def __enter__(self) -> Self:
        global _requested
        _requested = self._name  # again: the same object may open several blocks
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _requested
        _requested = self._before
