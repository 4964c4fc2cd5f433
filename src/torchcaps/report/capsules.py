"""The class capsules: reconstructions, and the dimensions of a pose."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchcaps.report.likeness import likeness
from torchcaps.report.markup import Html, Section, caption, lead, section, tag
from torchcaps.report.pictures import picture, strip
from torchcaps.report.samples import Subject, of_class, shown_classes, surest
from torchcaps.runs.text import MINUS, SIGMA, short
from torchcaps.types import POSE_SIZE

CLASSES, PER_CLASS = 10, 6
SPREAD_IMAGES = 100  # of a class, enough to know how its poses vary
STEPS = (-3, -2, -1, 0, 1, 2, 3)  # in standard deviations


def reconstructions(subject: Subject) -> Section:
    """Some test images of each class, and under them what the decoder makes of their capsules."""
    names = subject.evaluation.classes
    shown = shown_classes(subject.evaluation, CLASSES)
    says = "Test images, and below each the decoder's image of it, made from the capsule of the predicted class. "
    if len(shown) < len(names):
        says += f"{len(shown)} of {len(names)} classes are shown. "
    found = likeness(subject)
    groups = [_group(subject, label) for label in shown]
    return section(
        "reconstructions",
        "Reconstructions",
        lead(says, "Wrong predictions are named.", subject.note),
        tag("p", found.words, class_="verdict") if found else Html(),
        tag("div", *groups, class_="groups"),
    )


def _group(subject: Subject, label: int) -> Html:
    names = subject.evaluation.classes
    output, target = subject.poses(of_class(subject.evaluation, label, PER_CLASS))
    images = subject.classifier.network.reconstruct(output)  # [n, C, 32, 32]
    pairs = []
    for image, again, said in zip(target, images, output.activation.argmax(1).tolist(), strict=True):
        is_right = said == label
        top = picture(image, f"test image: {names[label]}")
        bottom = picture(again, f"its reconstruction by the capsule of {names[said]}")
        under = Html() if is_right else caption(names[said])
        pairs.append(tag("li", top, bottom, under, class_="" if is_right else "mistaken"))
    return tag("figure", tag("figcaption", names[label]), tag("ul", *pairs, class_="pairs"), class_="group")


def pose_dimensions(subject: Subject) -> Section:
    """The decoder's image as each of the 16 numbers of one class capsule is changed by itself."""
    evaluation, network = subject.evaluation, subject.classifier.network
    index = surest(evaluation)
    label = int(evaluation.predicted[index])
    name = evaluation.classes[label]
    spread = _spread(subject, label)  # [16]
    if spread is None:
        return section(
            "poses",
            "Pose dimensions",
            lead("No class has two test images, so there is no standard deviation to vary a pose by."),
        )
    output, target = subject.poses(torch.tensor([index]))
    varied = vary(output.pose[0], label, spread)  # [16, steps, classes, 16]
    labels = torch.full((POSE_SIZE * len(STEPS),), label)
    images = network.reconstruct(varied.flatten(0, 1), labels)
    images = images.reshape(POSE_SIZE, len(STEPS), *images.shape[1:])  # [16, steps, C, 32, 32]
    change = (images[:, -1] - images[:, 0]).abs().mean((1, 2, 3))  # [16]
    rows = [
        _row(number, images[number], float(spread[number]), float(change[number]), float(change.max()))
        for number in range(POSE_SIZE)
    ]
    original = tag(
        "figure",
        *(
            tag("div", picture(image, f"{caption}: {name}"), tag("span", caption))
            for caption, image in (("test image", target[0]), ("reconstruction", images[0, STEPS.index(0)]))
        ),
        class_="original",
    )
    return section(
        "poses",
        "Pose dimensions",
        lead(
            f"The reconstruction of one test image ({name}), with each of the 16 numbers of its pose varied alone: "
            f"from {abs(STEPS[0])} standard deviations {SIGMA} below its value to {STEPS[-1]} above ({SIGMA} is taken "
            "over test images of that class). The bars show how much the image changes.",
            subject.note,
        ),
        original,
        tag("div", _scale("first"), _scale("second"), *rows, class_="dimensions"),
    )


def vary(pose: Tensor, label: int, spread: Tensor) -> Tensor:
    """Class poses ``[classes, 16]`` with one number of one capsule changed: ``[16, steps, classes, 16]``."""
    steps = torch.tensor(STEPS).to(pose)
    change = torch.diag(spread)[:, None] * steps[:, None]  # [16, steps, 16]
    capsule = one_hot(torch.tensor(label), len(pose)).to(pose)  # [classes]
    return pose + change.unsqueeze(2) * capsule[:, None]


def _spread(subject: Subject, label: int) -> Tensor | None:
    """Standard deviations of the 16 numbers over test images of a class, where there are several."""
    index = of_class(subject.evaluation, label, SPREAD_IMAGES)
    if len(index) < 2:
        return None
    output, _ = subject.poses(index)
    return output.pose[:, label].std(0)  # [16]


def _scale(style: str) -> Html:
    """What the tiles of a row are."""
    signs = [tag("span", "0" if step == 0 else f"{step:+d}{SIGMA}".replace("-", MINUS)) for step in STEPS]
    return tag("div", tag("span"), tag("div", *signs, class_="steps"), tag("span"), class_=f"dimension {style}")


def _row(number: int, images: Tensor, spread: float, change: float, most: float) -> Html:
    title = f"dimension {number + 1}, {SIGMA} = {short(spread)}, mean change per pixel {short(change)}"
    share = change / most if most > 0 else 0.0
    bar = tag("span", tag("i", style=f"width:{100 * share:.0f}%"), class_="bar")
    return tag("div", tag("b", str(number + 1)), picture(strip(images), title), bar, class_="dimension", title=title)
