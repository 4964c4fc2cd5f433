"""Where in the image the winning class capsule's votes came from.

One unit of relevance starts at the class capsule. Every capsule hands what it has to the capsules of its receptive
field, by what they give to it: coupling times activation. Nothing is lost on the way, so every map sums to 1.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import fold, interpolate, one_hot, unfold

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.transforms import centre_crop, to_unit
from torchcaps.data.types import Split
from torchcaps.errors import UserError
from torchcaps.nn.conv import CapsuleConv2d
from torchcaps.nn.routed import RoutedLayer, record_routing
from torchcaps.ops.window import Window
from torchcaps.types import Capsules, Classified

BATCH_SIZE = 4  # recording keeps every vote of a map in memory

# From cold to hot, in order of brightness too, for those who do not see the colours.
COLOURS = ((0.05, 0.03, 0.20), (0.45, 0.10, 0.45), (0.85, 0.25, 0.25), (0.98, 0.60, 0.10), (1.00, 0.95, 0.55))


class Explanation(NamedTuple):
    """What a network saw in one image."""

    image: Tensor  # [C, S, S] in [0, 1], the crop that the network saw
    label: int  # the class of the highest activation
    activation: float  # of that class
    reconstruction: Tensor | None  # [C, 32, 32] in [0, 1]; None where the network has no decoder
    heat: Tensor  # [S, S], at least 0, sums to 1
    layers: dict[str, Tensor]  # the same at the input map of each routing layer, from the image on: [H, W]


class Step(NamedTuple):
    """What one routing layer did."""

    activation: Tensor  # [B, n, H, W], of its inputs
    window: Window
    coupling: Tensor  # [B, Ho, Wo, I, J]


def explain(classifier: Classifier, split: Split) -> list[Explanation]:
    """Explain a classifier's predictions for a prepared split (``classifier.prepare(images)`` gives one)."""
    if not any(isinstance(layer, RoutedLayer) for layer in classifier.network.modules()):
        raise UserError(
            f"{classifier.model} has no capsules, so no votes to follow: expected a hybrid or poolcaps network"
        )
    was_training = classifier.training
    classifier.eval()
    try:
        starts = range(0, len(split), BATCH_SIZE)
        return [found for start in starts for found in _explain(classifier, split.images[start : start + BATCH_SIZE])]
    finally:
        classifier.train(was_training)


@torch.no_grad()
def _explain(classifier: Classifier, images: Tensor) -> list[Explanation]:
    network, pipeline = classifier.network, classifier.pipeline
    batch = pipeline.evaluate(images, torch.zeros(len(images), dtype=torch.int64))
    with record_steps(network) as steps:
        output: Classified = network(batch.image.to(next(network.parameters())))
    activation, label = output.activation.max(1)  # [B], [B]
    relevance = one_hot(label, network.num_classes).to(activation)[:, None, None]  # [B, 1, 1, classes]
    maps: dict[str, Tensor] = {}
    for name in reversed(steps):
        relevance = step_back(relevance, steps[name])  # [B, H, W, n]
        maps[name] = as_share(relevance.sum(-1)).cpu()  # [B, H, W]
    # The first capsules of the paper's networks lie on the pixels, those of others on every second or fourth.
    heat = as_share(interpolate(maps[name].unsqueeze(1), size=batch.image.shape[2:]).squeeze(1))  # [B, S, S]
    seen = to_unit(centre_crop(images, pipeline.crop))  # [B, C, S, S]
    has_decoder = getattr(network, "decoder", None) is not None
    reconstruction = network.reconstruct(output).cpu() if has_decoder else None  # [B, C, 32, 32]
    return [
        Explanation(
            image=seen[sample],
            label=int(label[sample]),
            activation=float(activation[sample]),
            reconstruction=None if reconstruction is None else reconstruction[sample],
            heat=heat[sample],
            layers={name: maps[name][sample] for name in steps},
        )
        for sample in range(len(images))
    ]


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


def as_share(maps: Tensor) -> Tensor:
    """Maps ``[B, H, W]`` that sum to 1, as they do but for rounding."""
    return maps / maps.sum((1, 2), keepdim=True)


def heat_overlay(image: Tensor, heat: Tensor) -> Tensor:
    """The heat ``[S, S]`` in colours on the image ``[C, S, S]`` in grey: ``[3, S, S]`` uint8.

    The coldest place is nearly clear and the hottest is yellow, unless they are closer than the mean heat: differences
    that small should not look like any.
    """
    span = torch.maximum(heat.max() - heat.min(), heat.mean())
    level = (heat - heat.min()) / span.clamp(min=torch.finfo(heat.dtype).tiny)  # [S, S] in [0, 1]
    place = level * (len(COLOURS) - 1)
    colours = torch.tensor(COLOURS, dtype=heat.dtype, device=heat.device)  # [K, 3]
    below = place.long().clamp(max=len(COLOURS) - 2)  # [S, S]
    colour = torch.lerp(colours[below], colours[below + 1], (place - below).unsqueeze(-1)).permute(2, 0, 1)  # [3, S, S]
    grey = image.mean(0) if len(image) == 3 else image[0]  # [S, S]; of a stereo pair the left one
    blended = torch.lerp(grey.expand(3, -1, -1).to(heat), colour, 0.25 + 0.5 * level)
    return (blended * 255).round().to(torch.uint8)
