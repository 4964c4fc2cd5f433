"""The confusion matrix."""

import torch
from torch import Tensor

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.report.markup import Html, Section, lead, scroll_box, section, tag
from torchcaps.report.pictures import picture
from torchcaps.runs.text import count, percent

MOST_CLASSES = 20  # of more, the matrix is a picture
UPRIGHT = 6  # from more columns than that on, their names stand upright
LISTED = 6  # confusions
RIGHT, WRONG = (47, 95, 208), (208, 72, 47)


def confusion(evaluation: Evaluation) -> Section:
    """The matrix, and beside it the most common confusions."""
    matrix = evaluation.confusion  # [true, predicted]
    classes = evaluation.classes
    says = "One row per true class: how its test images were classified. Correct predictions are on the diagonal."
    if len(classes) <= MOST_CLASSES:
        figure = tag("figure", scroll_box("confusion matrix", _table(matrix, classes)), class_="matrix")
    else:
        alt = f"confusion matrix of {len(classes)} classes, {percent(evaluation.error)} of the images off the diagonal"
        says += " The darker a cell, the larger its share of the row."
        figure = tag("figure", picture(_shares(matrix), alt), class_="matrix heat")
    parts = [figure, tag("div", _pairs(matrix, classes), _hardest(matrix, classes), class_="lists")]
    return section("confusion", "Confusion matrix", lead(says), tag("div", *parts, class_="beside"))


def row_shares(matrix: Tensor) -> Tensor:
    """Each row divided by its sum; zeros for a class without images."""
    return matrix / matrix.sum(1, keepdim=True).clamp(min=1)


def _table(matrix: Tensor, classes: tuple[str, ...]) -> Html:
    upright = "upright" if len(classes) > UPRIGHT or max(map(len, classes)) > 12 else ""
    names = [tag("th", tag("span", name), scope="col", title=name) for name in classes]
    head = tag("tr", tag("th", "true \\ predicted", class_="corner"), *names)
    rows = []
    for label, shares in enumerate(row_shares(matrix).tolist()):
        cells = [
            _cell(int(matrix[label, said]), share, label == said, f"{classes[label]} classified as {classes[said]}")
            for said, share in enumerate(shares)
        ]
        name = tag("th", tag("span", classes[label]), scope="row", title=classes[label])
        rows.append(tag("tr", name, *cells))
    return tag("table", tag("thead", head, class_=upright), tag("tbody", *rows))


def _cell(images: int, share: float, is_right: bool, title: str) -> Html:
    if not images:
        return tag("td", "·", class_="none")
    # the square root lifts the rare confusions, which are what one looks for
    strength = 0.95 * (share if is_right else share**0.5)
    style = ("right" if is_right else "wrong") + (" strong" if strength > 0.8 else "")
    return tag(
        "td", str(images), class_=style, style=f"--strength:{strength:.2f}", title=f"{title}: {percent(share, 1)}"
    )


def _shares(matrix: Tensor) -> Tensor:
    """The matrix as a picture on any background: ``[4, classes, classes]`` uint8."""
    on_diagonal = torch.eye(len(matrix), dtype=torch.bool)
    colour = torch.where(on_diagonal, torch.tensor(RIGHT).view(3, 1, 1), torch.tensor(WRONG).view(3, 1, 1))
    strength = (row_shares(matrix).sqrt() * 255).round().unsqueeze(0)
    return torch.cat([colour, strength]).to(torch.uint8)


def _pairs(matrix: Tensor, classes: tuple[str, ...]) -> Html:
    wrong = matrix.clone().fill_diagonal_(0).flatten()
    images, place = wrong.topk(min(LISTED, len(wrong)))
    rows = [
        tag("li", tag("span", classes[at // len(classes)], " → ", classes[at % len(classes)]), tag("b", f"{number:,}"))
        for number, at in zip(images.tolist(), place.tolist(), strict=True)
        if number
    ]
    if not rows:
        return tag("p", "Every test image was classified correctly.")
    return tag("div", tag("h3", "Most common confusions"), tag("ol", *rows, class_="ranking"))


def _hardest(matrix: Tensor, classes: tuple[str, ...]) -> Html:
    """For many classes, whose errors the picture does not say."""
    if len(classes) <= MOST_CLASSES:
        return Html()
    error = torch.where(matrix.sum(1) > 0, 1 - row_shares(matrix).diagonal(), -1)  # [classes]
    values, labels = error.topk(LISTED)
    rows = [
        tag(
            "li",
            tag("span", classes[label]),
            tag("b", f"{percent(value, 1)} of {count(int(matrix[label].sum()), 'image')}"),
        )
        for value, label in zip(values.tolist(), labels.tolist(), strict=True)
        if value >= 0
    ]
    return tag("div", tag("h3", "Hardest classes"), tag("ol", *rows, class_="ranking"))
