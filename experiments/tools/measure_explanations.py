"""How far explanations can be believed: deletion and insertion curves, and on turntable the object's mask.

Deletion replaces an image's pixels by its background, the hottest first; insertion puts them onto the background in the
same order. Where the heat is right, the predicted class loses its activation early and gains it early. Images are some
of the training images, those that a run holds out by default, never test images: what is best here becomes the default.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
import tyro
from torch import Tensor

from torchcaps.classifier import Classifier, load
from torchcaps.classifier.explain import Method, explain
from torchcaps.classifier.explain.gradients import background
from torchcaps.data import Split, make_splits
from torchcaps.data import load as load_set
from torchcaps.data.transforms import centre_crop
from torchcaps.data.turntable import object_masks

STEPS = 20
Fill = Literal["background", "mean"]


class Row(NamedTuple):
    """The scores of one method, as means over images."""

    method: str
    deletion: float  # area under the curve: the lower, the better
    insertion: float  # the higher, the better
    inside: float | None = None  # share of the heat that lies on the object
    pointing: float | None = None  # share of the images whose hottest pixel lies on the object


def order_of(heat: Tensor) -> Tensor:
    """For each pixel of ``[B, S, S]`` how many come before it, the hottest first; ties are drawn: ``[B, S, S]``."""
    flat = heat.flatten(1)  # [B, S S]
    drawn = torch.randperm(flat.shape[1], generator=torch.Generator().manual_seed(0))
    hottest_first = drawn[flat[:, drawn].argsort(dim=1, descending=True, stable=True)]
    return hottest_first.argsort(dim=1).view(heat.shape)


def curve(share: Callable[[Tensor], Tensor], start: Tensor, end: Tensor, heat: Tensor, steps: int = STEPS) -> Tensor:
    """``share [B]`` of images on the way from ``start`` to ``end [B, C, S, S]``, hottest first: ``[steps+1, B]``."""
    order = order_of(heat).unsqueeze(1)  # [B, 1, S, S]
    pixels = heat[0].numel()
    return torch.stack([share(torch.where(order < step * pixels / steps, end, start)) for step in range(steps + 1)])


def area(values: Tensor) -> float:
    """Under curves ``[steps+1, B]`` over 0 to 1, the mean of all images."""
    return float(torch.trapezoid(values, dx=1 / (len(values) - 1), dim=0).mean())


def baselines(image: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Heat ``[B, S, S]`` that knows nothing of the network."""
    batch, _, _, side = image.shape
    yield "random order", torch.rand(batch, side, side, generator=torch.Generator().manual_seed(1))
    apart = (torch.arange(side) - (side - 1) / 2).square()  # [S]
    yield "the middle first", (-(apart + apart.unsqueeze(1)) / (2 * (side / 4) ** 2)).exp().expand(batch, side, side)
    yield "distance from the background", (image - background(image)).abs().sum(1)


def rows(
    classifier: Classifier,
    split: Split,
    masks: Tensor | None,
    *,
    methods: Sequence[Method] = (),
    fill: Fill = "background",
) -> Iterator[Row]:
    """The scores of methods, by default all, for a prepared split; masks ``[B, S, S]`` of the objects."""
    image = classifier.pipeline.evaluate(split.images, split.labels).image.contiguous()  # [B, C, S, S]
    label = classifier.activations(split).argmax(1)
    blank = (background(image) if fill == "background" else image.mean((2, 3), keepdim=True)).expand_as(image)

    @torch.no_grad()
    def share(images: Tensor) -> Tensor:
        activation = torch.cat([classifier(part).activation for part in torch.split(images, 50)])  # [B, classes]
        return activation.gather(1, label.unsqueeze(1)).squeeze(1) / activation.sum(1)

    def score(method: str, heat: Tensor) -> Row:
        deletion, insertion = (area(curve(share, *ends, heat)) for ends in ((image, blank), (blank, image)))
        if masks is None:
            return Row(method, deletion, insertion)
        on_object = (heat * masks).sum((1, 2)) / heat.sum((1, 2))
        hottest = (order_of(heat) == 0) & masks.bool()
        return Row(method, deletion, insertion, float(on_object.mean()), float(hottest.any((1, 2)).float().mean()))

    for name, heat in () if methods else baselines(image):
        yield score(name, heat)
    everything = [method for method in get_args(Method) if method != "votes" or classifier.network.has_capsules]
    for method in methods or everything:
        yield score(method, torch.stack([found.heat for found in explain(classifier, split, method)]))


def masks_of(classifier: Classifier, split: Split) -> Tensor:
    """Whether each pixel that the network sees of turntable's images shows the object: ``[B, S, S]``."""
    prepared = classifier.prepare(Split(object_masks(split), split.labels))  # resized as the images are
    return (centre_crop(prepared.images, classifier.pipeline.crop)[:, 0] > 127).float()


def main(
    network: tyro.conf.Positional[Path],
    data: tyro.conf.Positional[str],
    root: Path | None = None,
    images: int = 100,
    methods: tuple[Method, ...] = (),
    fill: Fill = "background",
) -> None:
    """Print a table of all methods.

    Args:
        network: A run folder, or the name of a pretrained network.
        data: Its data set.
        root: Where the data set's files are.
        images: How many of the images held out of the training images.
        methods: These only; default: all, and orders that know nothing of the network.
        fill: What pixels are replaced by: the median of the image's edge, or the mean of the image.
    """
    classifier = load(network)
    held_out = make_splits(load_set(data, root=root)).validation
    assert held_out is not None
    split = held_out.take(torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))[:images])
    masks = masks_of(classifier, split) if data == "turntable" else None
    print("| | deletion | insertion |" + " inside | pointing |" * (masks is not None))
    print("|---|---|---|" + "---|---|" * (masks is not None))
    for method, *scores in rows(classifier, classifier.prepare(split), masks, methods=methods, fill=fill):
        print(f"| {method} | " + " | ".join(f"{value:.3f}" for value in scores if value is not None) + " |", flush=True)
    if masks is not None:
        print(f"\nThe objects cover {float(masks.mean()):.3f} of the images.")


if __name__ == "__main__":
    tyro.cli(main)
