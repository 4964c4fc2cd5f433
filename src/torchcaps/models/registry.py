"""Networks by name."""

import inspect
from collections.abc import Callable
from typing import Any

from torchcaps.functional.registry import routing_method
from torchcaps.models.network import Network
from torchcaps.models.pretrained import pretrained_network

_MODELS: dict[str, Callable[..., Network]] = {}


def register_model(build: Callable[..., Network]) -> Callable[..., Network]:
    """Register a function that builds a network, under the function's name; it says which class it returns."""
    _MODELS[build.__name__] = build
    return build


def list_models() -> list[str]:
    """Names of all networks, in alphabetical order.

    >>> list_models()
    ['cnn32', 'cnn64', 'headcaps32', 'headcaps64', 'hybrid32', 'hybrid64', 'poolcaps32', 'poolcaps64']
    """
    return sorted(_MODELS)


def create_model(name: str, *, pretrained: str | None = None, **options: Any) -> Network:
    """Build a network by its name, with the weights of one of `list_pretrained` where ``pretrained`` names it.

    >>> import torch
    >>> model = create_model("hybrid32", num_classes=10, routing="frms", decoder=True)
    >>> output = model(torch.randn(2, 1, 32, 32))
    >>> output.activation.shape, output.pose.shape, model.reconstruct(output).shape
    (torch.Size([2, 10]), torch.Size([2, 10, 16]), torch.Size([2, 1, 32, 32]))
    """
    build = _builder(name)
    known = model_options(build, options)
    for option in options:
        if option not in known:
            raise TypeError(f"model {name!r} has no option {option!r}; it has {', '.join(known)}")
    if pretrained is None:
        return build(**options)
    return pretrained_network(pretrained, name, build, options, known)


def network_class(name: str) -> type[Network]:
    """The class of the network of that name, which says what all such networks have in common.

    >>> network_class("hybrid64").has_capsules, network_class("cnn64").has_capsules
    (True, False)
    """
    returned: type[Network] = inspect.signature(_builder(name)).return_annotation
    return returned


def _builder(name: str) -> Callable[..., Network]:
    if name not in _MODELS:
        raise ValueError(f"model {name!r}: expected one of {', '.join(list_models())}")
    return _MODELS[name]


def model_options(build: Callable[..., Network], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a network takes, those of its routing method included, with their defaults."""
    network: type[Network] = inspect.signature(build).return_annotation
    arguments = inspect.signature(network).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    known = {key: argument.default for key, argument in arguments.items() if argument.kind is keyword}
    if "routing" in arguments:
        method = routing_method(options.get("routing", arguments["routing"].default))
        known |= {key: value for key, value in method.options.items() if key not in known}
    of_build = inspect.signature(build).parameters
    return {key: of_build[key].default if key in of_build else value for key, value in known.items()}
