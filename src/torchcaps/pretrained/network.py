"""``create_model`` with weights."""

from typing import Any

from torchcaps.classifier.files import load
from torchcaps.errors import OptionError
from torchcaps.models.hybrid import HybridNetwork
from torchcaps.models.network import Network
from torchcaps.pretrained.shipped import list_pretrained, listing, shipped_folder


def pretrained_network(name: str, model: str, given: dict[str, Any], defaults: dict[str, Any]) -> Network:
    """The network of that name, float32, without its decoder where that is asked for.

    ``given`` are the caller's options, which may only say what the network is anyway; ``defaults`` are those of the
    options that its file leaves out.
    """
    if name not in list_pretrained(model):
        raise OptionError(f"model {model!r} has no pretrained weights {name!r}; there are {listing()}")
    classifier = load(shipped_folder(name))
    network, built = classifier.network, {**defaults, **classifier.options}
    for option, value in given.items():
        if value != built[option] and (option, value) != ("decoder", False):
            raise OptionError(
                f"{option}={value!r}: the pretrained weights {name!r} have {option}={built[option]!r}; "
                "leave the option out, or train a network of your own"
            )
    if isinstance(network, HybridNetwork) and not given.get("decoder", True):
        network.decoder = None
    return network.train()  # as every new model is
