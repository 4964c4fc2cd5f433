"""Explanations of a classifier's predictions."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.explain.methods import DEFAULT, Method, find_explainer
from torchcaps.classifier.explain.relevance import Explainer, as_share
from torchcaps.data.arrays import Images
from torchcaps.data.transforms import centre_crop, to_unit
from torchcaps.data.types import Split
from torchcaps.types import Classified, Scores

BATCH_SIZE = 4  # recording keeps every vote of a map in memory


class Explanation(NamedTuple):
    """What a network saw in one image."""

    image: Tensor  # [C, S, S] in [0, 1], the crop that the network saw
    label: int  # the class of the highest activation
    activation: float  # of that class
    reconstruction: Tensor | None  # [C, 32, 32] in [0, 1]; None where the network has no decoder
    method: Method
    heat: Tensor  # [S, S], at least 0, sums to 1
    layers: dict[str, Tensor]  # the same at the inputs of inner layers that the method knows of, from the image on


def explain(classifier: Classifier, images: Images | Split, method: Method = DEFAULT) -> list[Explanation]:
    """Explain a classifier's predictions for images of any size, or for a split.

    docs/explanations.md says what each method shows, and how far it can be believed.
    """
    explainer = find_explainer(method, classifier.network, classifier.model)
    was_training = classifier.training
    classifier.eval()
    split = classifier.prepare(images)
    try:
        parts = [split.images[start : start + BATCH_SIZE] for start in range(0, len(split), BATCH_SIZE)]
        return [found for part in parts for found in _explain(classifier, part, method, explainer)]
    finally:
        classifier.train(was_training)


@torch.no_grad()
def _explain(classifier: Classifier, images: Tensor, method: Method, explainer: Explainer) -> list[Explanation]:
    network, pipeline = classifier.network, classifier.pipeline
    batch = pipeline.evaluate(images, torch.zeros(len(images), dtype=torch.int64))
    image = batch.image.to(next(network.parameters()))  # [B, C, S, S]
    output: Classified | Scores = network(image)
    activation, label = output.activation.max(1)  # [B], [B]
    relevance = explainer(network, image, label)
    heat = as_share(relevance.heat).cpu()  # [B, S, S]
    layers = {name: as_share(maps).cpu() for name, maps in relevance.layers.items()}  # [B, H, W] each
    seen = to_unit(centre_crop(images, pipeline.crop))  # [B, C, S, S]
    reconstruction = None
    if isinstance(output, Classified) and getattr(network, "decoder", None) is not None:
        reconstruction = network.reconstruct(output).cpu()  # [B, C, 32, 32]
    return [
        Explanation(
            image=seen[sample],
            label=int(label[sample]),
            activation=float(activation[sample]),
            reconstruction=None if reconstruction is None else reconstruction[sample],
            method=method,
            heat=heat[sample],
            layers={name: maps[sample] for name, maps in layers.items()},
        )
        for sample in range(len(images))
    ]
