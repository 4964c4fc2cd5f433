"""How the log-odds of a class depend on the image and on every map inside of the network."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot

from torchcaps.models.network import Network
from torchcaps.nn.routed import RoutedLayer
from torchcaps.types import Classified, Scores

IMAGE = "image"


class Site(NamedTuple):
    """What passes one place of the network: an image, or feature maps, or the poses and activations of capsules."""

    maps: tuple[Tensor, ...]  # [B, C, H, W] each
    slopes: tuple[Tensor, ...]  # of the log-odds, by these maps


def inner_layers(network: Network) -> list[str]:
    """The layers whose inputs are looked at: those with routing, or without capsules all convolutions but the first."""
    kind = RoutedLayer if network.has_capsules else nn.Conv2d
    names = [name for name, layer in network.named_modules() if isinstance(layer, kind)]
    return names if network.has_capsules else names[1:]


def find_slopes(network: Network, image: Tensor, label: Tensor) -> dict[str, Site]:
    """One pass forward and back: the image's site, then those at the inputs of the inner layers, in their order.

    Nothing of it stays in the network, and it works inside of ``torch.no_grad`` and ``torch.inference_mode``.
    """
    with torch.inference_mode(False), torch.enable_grad(), ExitStack() as hooks:
        image = image.clone().requires_grad_()  # a clone: tensors of inference mode cannot have gradients
        seen: dict[str, tuple[Tensor, ...]] = {IMAGE: (image,)}
        for name in inner_layers(network):

            def keep(_layer: nn.Module, arguments: tuple[Tensor | tuple[Tensor, ...]], name: str = name) -> None:
                seen[name] = tuple(arguments[0]) if isinstance(arguments[0], tuple) else (arguments[0],)

            hooks.callback(network.get_submodule(name).register_forward_pre_hook(keep).remove)
        score = log_odds(without_learning(network)(image), label).sum()
        maps = [of_site for site in seen.values() for of_site in site]
        # Some maps are not used: routing by agreement does not read its inputs' activations.
        slopes = iter(torch.autograd.grad(score, maps, allow_unused=True, materialize_grads=True))
        return {
            name: Site(tuple(map_.detach() for map_ in site), tuple(next(slopes) for _ in site))
            for name, site in seen.items()
        }


def without_learning(network: Network) -> Callable[[Tensor], Classified | Scores]:
    """The network with copies of its weights that ask for no gradients: half the work, and none can be left behind."""

    def copy(weight: Tensor) -> Tensor:
        return weight.clone() if weight.is_inference() else weight.detach()

    weights = {name: copy(weight) for name, weight in (*network.named_parameters(), *network.named_buffers())}
    return lambda image: functional_call(network, weights, (image,))


def log_odds(output: Classified | Scores, label: Tensor) -> Tensor:
    """log( a_j / sum of the other classes' activations ) for the class ``label [B]``: ``[B]``.

    Of a softmax, as in eq. 8, this is the class's score against those of the others. Unlike the activation, it still
    has a slope where the network is sure.
    """
    activation = output.activation  # [B, classes]
    activation = activation.to(torch.promote_types(activation.dtype, torch.float32))
    own = one_hot(label, activation.shape[1]).to(activation)
    tiny = torch.finfo(activation.dtype).tiny
    chosen, others = ((activation * part).sum(1).clamp(min=tiny) for part in (own, 1 - own))  # [B] each
    return chosen.log() - others.log()
