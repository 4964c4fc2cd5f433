"""Where in the image the winning class capsule's votes came from: relevance handed down by coupling alone.

One unit of relevance starts at the class capsule. Every capsule hands what it has to the capsules of its receptive
field, by what they give to it: coupling times activation. Nothing is lost on the way, so every map sums to 1.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import fold, interpolate, one_hot, unfold

from torchcaps.classifier.explain.relevance import Relevance
from torchcaps.models.network import Network
from torchcaps.nn.conv import CapsuleConv2d
from torchcaps.nn.routed import record_routing
from torchcaps.ops.window import Window
from torchcaps.types import Capsules


class Step(NamedTuple):
    """What one routing layer did."""

    activation: Tensor  # [B, n, H, W], of its inputs
    window: Window
    coupling: Tensor  # [B, Ho, Wo, I, J]


@torch.no_grad()
def votes(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """Follow the votes for the class ``label [B]`` from the class capsules down to the pixels."""
    with record_steps(network) as steps:
        network(image)
    relevance = one_hot(label, network.num_classes).to(image)[:, None, None]  # [B, 1, 1, classes]
    layers: dict[str, Tensor] = {}
    for name in reversed(steps):
        relevance = step_back(relevance, steps[name])  # [B, H, W, n]
        layers = {name: relevance.sum(-1), **layers}  # [B, H, W]
    # The first capsules of the paper's networks lie on the pixels, those of others on every second or fourth.
    heat = interpolate(layers[name].unsqueeze(1), size=image.shape[2:]).squeeze(1)  # [B, S, S]
    return Relevance(heat, layers)


@contextmanager
def record_steps(network: nn.Module) -> Iterator[dict[str, Step]]:
    """Collect what each routing layer does in one forward pass, by name, in the order of the calls."""
    steps: dict[str, Step] = {}
    with record_routing(network) as records, ExitStack() as hooks:
        for name in records:

            def keep(layer: nn.Module, arguments: tuple[Capsules], _output: object, name: str = name) -> None:
                activation = arguments[0].activation  # [B, n, H, W]
                height, width = activation.shape[2:]
                whole_map = Window((height, width), (1, 1), (0, 0))
                window = layer.window if isinstance(layer, CapsuleConv2d) else whole_map
                steps[name] = Step(activation, window, records[name][-1].coupling)

            hooks.callback(network.get_submodule(name).register_forward_hook(keep).remove)
        yield steps


def step_back(relevance: Tensor, step: Step) -> Tensor:
    """Relevance of a layer's output capsules ``[B, Ho, Wo, J]`` to that of its input capsules ``[B, H, W, n]``."""
    batch, n, height, width = step.activation.shape
    kernel, stride, padding = step.window
    places = kernel[0] * kernel[1]

    def fields(maps: Tensor) -> Tensor:  # [B, n, H, W] to [B, Ho, Wo, I, 1], zero in the padding
        columns = unfold(maps, kernel, padding=padding, stride=stride)  # [B, n kh kw, Ho Wo]
        return columns.reshape(batch, n, places, -1).permute(0, 3, 2, 1).reshape(*step.coupling.shape[:-1], 1)

    weight = step.coupling * fields(step.activation)  # [B, Ho, Wo, I, J]
    # A capsule to which nothing is given stands for its whole field, without the padding.
    is_nothing = weight.sum(-2, keepdim=True) == 0
    weight = torch.where(is_nothing, fields(torch.ones_like(step.activation)), weight)
    share = weight / weight.sum(-2, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    handed = (share * relevance.unsqueeze(-2)).sum(-1)  # [B, Ho, Wo, I]
    columns = handed.reshape(batch, -1, places, n).permute(0, 3, 2, 1).flatten(1, 2)  # [B, n kh kw, Ho Wo]
    return fold(columns, (height, width), kernel, padding=padding, stride=stride).permute(0, 2, 3, 1)
