"""What supports the predicted class, at the input of each routing layer."""

from itertools import zip_longest

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps.classifier.explain import Explanation, explain, heat_overlay
from torchcaps.report.markup import Html, Section, lead, section, tag
from torchcaps.report.pictures import picture
from torchcaps.report.samples import Subject, of_class, shown_classes
from torchcaps.runs.text import TIMES, short

IMAGES = 6


def routing(subject: Subject) -> Section:
    """For some test images: the input, and the heat on it, from the class capsules down to the pixels."""
    index = chosen(subject)  # [n]
    found = explain(subject.classifier, subject.prepared(index), "evidence")
    labels = subject.evaluation.label[index].tolist()
    cards = [_card(subject, label, one) for label, one in zip(labels, found, strict=True)]
    pictures = max(len(one.layers) for one in found) + 2  # with the input and the mean: so wide is a card
    return section(
        "routing",
        "Routing",
        lead(
            "What supports the predicted class: how much the capsules at each place add to its score, compared with "
            "an image that is all background. From the coarse map below the class capsules to the fine map of the "
            "primary capsules; last, the mean of these and of the pixels. Brighter places count more. ",
            subject.note,
        ),
        tag("div", *cards, class_="routes", style=f"--pictures:{pictures}"),
    )


def chosen(subject: Subject) -> Tensor:
    """Indices of an image of each class, then of a second one, and so on."""
    labels = shown_classes(subject.evaluation, IMAGES)
    of_classes = [of_class(subject.evaluation, label, IMAGES).tolist() for label in labels]
    rounds = zip_longest(*of_classes)
    return torch.tensor([index for turn in rounds for index in turn if index is not None][:IMAGES])


def _card(subject: Subject, label: int, found: Explanation) -> Html:
    names = subject.evaluation.classes
    steps = [_step("input", picture(found.image, f"test image: {names[label]}"))]
    for layer, heat in reversed(found.layers.items()):
        size = TIMES.join(map(str, heat.shape))
        overlay = heat_overlay(found.image, enlarge(heat, found.image.shape[1]))
        steps.append(_step(size, picture(overlay, f"evidence at the {size} input of {layer}", title=layer)))
    steps.append(_step("mean", picture(heat_overlay(found.image, found.heat), "mean of the evidence")))
    says = tag("b", names[found.label]) if found.label == label else tag("b", names[found.label], class_="mistaken")
    caption = tag("figcaption", f"{names[label]}, classified as ", says, f" ({short(found.activation)})")
    return tag("figure", caption, tag("div", *steps, class_="steps"), class_="route")


def _step(name: str, image: Html) -> Html:
    return tag("div", image, tag("span", name))


def enlarge(heat: Tensor, size: int) -> Tensor:
    """A map ``[H, W]`` on the pixels ``[S, S]`` that it lies on, in squares: so it shows how fine it is."""
    return interpolate(heat[None, None], size=(size, size)).squeeze(0).squeeze(0)
