"""One contract for every routing method. Layers, dispatch, benchmark and tests take the methods from this registry."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from torchcaps.types import Routed

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Start:
    """The shape of a learned parameter, and the constant that it starts at."""

    shape: tuple[int, ...]
    value: float


class Route(Protocol):
    """votes ``[..., I, J, D]``, activation ``[..., I]`` -> Routed."""

    def __call__(self, votes: Tensor, activation: Tensor, parameters: Parameters, **options: Any) -> Routed: ...


@dataclass(frozen=True)
class RoutingMethod:
    """A registered method: what it learns for (J, D), how it routes, and the options with their defaults.

    ``native`` are the names of its parameters in the order in which the native core takes them; None where the core
    does not have the method.
    """

    name: str
    label: str
    parameters: Callable[[int, int], dict[str, Start]]
    route: Route
    options: Mapping[str, Any]
    native: tuple[str, str] | None = None

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise for an option that the method does not have."""
        for name in options:
            if name not in self.options:
                raise TypeError(
                    f"routing {self.name!r} has no option {name!r}; it has {', '.join(sorted(self.options))}"
                )


_METHODS: dict[str, RoutingMethod] = {}


def register_routing(
    name: str,
    *,
    label: str,
    algorithm: Callable[..., Any],
    parameters: Callable[[int, int], dict[str, Start]],
    native: tuple[str, str] | None = None,
) -> Callable[[Route], Route]:
    """Register a ``route`` function; its keyword-only arguments and those of ``algorithm`` are the method's options."""

    def register(route: Route) -> Route:
        if name in _METHODS:
            raise ValueError(f"routing method {name!r} is registered already")
        options = {**keyword_only(algorithm), **keyword_only(route)}
        _METHODS[name] = RoutingMethod(name, label, parameters, route, options, native)
        return route

    return register


def keyword_only(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a function, with their defaults."""
    arguments = inspect.signature(function).parameters.values()
    return {a.name: a.default for a in arguments if a.kind is inspect.Parameter.KEYWORD_ONLY}


def routing_method(name: str) -> RoutingMethod:
    """The registered method of that name.

    >>> routing_method("em").parameters(5, 16)
    {'beta_u': Start(shape=(5,), value=0.0), 'beta_a': Start(shape=(5,), value=0.0)}
    """
    if name not in _METHODS:
        raise ValueError(f"routing={name!r}: expected one of {', '.join(list_routings())}")
    return _METHODS[name]


def list_routings(*, native: bool = False) -> list[str]:
    """Names of all routing methods, or of those that the native core has, in alphabetical order."""
    return sorted(name for name, method in _METHODS.items() if method.native or not native)
