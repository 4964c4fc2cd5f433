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
    """A registered method: what it learns for (J, D), how it routes, and what its callers have to know.

    ``options`` are its options with their defaults; ``check`` takes all of them by name, and raises for a wrong value.
    ``uses_activation`` says whether the input activations change the result. ``native`` are the names of its parameters
    in the order in which the native core takes them; None where the core does not have the method.
    """

    name: str
    label: str
    parameters: Callable[[int, int], dict[str, Start]]
    route: Route
    options: Mapping[str, Any]
    check: Callable[..., None]
    uses_activation: bool = True
    native: tuple[str, str] | None = None

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise for an option that the method does not have, and for a value that it cannot use."""
        for name in options:
            if name not in self.options:
                raise TypeError(
                    f"routing {self.name!r} has no option {name!r}; it has {', '.join(sorted(self.options))}"
                )
        self.check(**{**self.options, **options})


_METHODS: dict[str, RoutingMethod] = {}


def register_routing(
    name: str,
    *,
    label: str,
    algorithm: Callable[..., Any],
    parameters: Callable[[int, int], dict[str, Start]],
    check: Callable[..., None],
    uses_activation: bool = True,
    native: tuple[str, str] | None = None,
) -> Callable[[Route], Route]:
    """Register a ``route`` function; its keyword-only arguments and those of ``algorithm`` are the method's options.

    ``iterations`` has to be one of them, for layers give it to every method. See :class:`RoutingMethod` for the rest.
    """

    def register(route: Route) -> Route:
        if name in _METHODS:
            raise ValueError(f"routing method {name!r} is registered already")
        options = {**keyword_only(algorithm), **keyword_only(route)}
        if "iterations" not in options:
            raise TypeError(f"routing method {name!r} has no keyword-only argument 'iterations', which layers give it")
        _METHODS[name] = RoutingMethod(name, label, parameters, route, options, check, uses_activation, native)
        return route

    return register


def keyword_only(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a function, with their defaults."""
    arguments = inspect.signature(function).parameters.values()
    return {a.name: a.default for a in arguments if a.kind is inspect.Parameter.KEYWORD_ONLY}


def routing_method(name: str | RoutingMethod) -> RoutingMethod:
    """The registered method of that name; a method itself is returned as it is.

    >>> routing_method("em").parameters(5, 16)
    {'beta_u': Start(shape=(5,), value=0.0), 'beta_a': Start(shape=(5,), value=0.0)}
    """
    if isinstance(name, RoutingMethod):
        return name
    if name not in _METHODS:
        raise ValueError(f"routing={name!r}: expected one of {', '.join(list_routings())}")
    return _METHODS[name]


def list_routings(*, native: bool = False) -> list[str]:
    """Names of all routing methods, or of those that the native core has, in alphabetical order."""
    return sorted(name for name, method in _METHODS.items() if method.native or not native)
