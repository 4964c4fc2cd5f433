"""The confusion matrix."""

import torch
from torch import Tensor

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.report.markup import Html, Section, caption, lead, scroll_box, searchable, section, tag
from torchcaps.report.pictures import picture
from torchcaps.runs.text import count, percent

MOST_CLASSES = 20  # of more, the matrix is a picture
UPRIGHT = 6  # from more columns than that on, their names stand upright
LISTED, LISTED_OF_MANY = 6, 200  # confusions
POINTED_AT = 2000  # cells of a picture that say what they are
RIGHT, WRONG = (47, 95, 208), (208, 72, 47)


def confusion(evaluation: Evaluation) -> Section:
    """The matrix, and beside it the most common confusions."""
    matrix = evaluation.confusion  # [true, predicted]
    classes = evaluation.classes
    says = "One row per true class: how its test images were classified. Correct predictions are on the diagonal."
    if len(classes) <= MOST_CLASSES:
        figure = tag("figure", scroll_box("confusion matrix", _table(matrix, classes)), class_="matrix")
    else:
        says += " The darker a cell, the larger its share of the row; point at one to see what it is."
        figure = _picture(matrix, classes, f"{percent(evaluation.error)} of the images off the diagonal")
    parts = [figure, tag("div", _pairs(matrix, classes), class_="lists")]
    return section("confusion", "Confusion matrix", lead(says), tag("div", *parts, class_="beside"))


def row_shares(matrix: Tensor) -> Tensor:
    """Each row divided by its sum; zeros for a class without images."""
    return matrix / matrix.sum(1, keepdim=True).clamp(min=1)


def _table(matrix: Tensor, classes: tuple[str, ...]) -> Html:
    upright = "upright" if len(classes) > UPRIGHT or max(map(len, classes)) > 12 else ""
    names = [tag("th", caption(name), scope="col") for name in classes]
    head = tag("tr", tag("th", "true \\ predicted", class_="corner"), *names)
    rows = []
    for label, shares in enumerate(row_shares(matrix).tolist()):
        cells = [
            _cell(int(matrix[label, said]), share, label == said, f"{classes[label]} classified as {classes[said]}")
            for said, share in enumerate(shares)
        ]
        name = tag("th", caption(classes[label]), scope="row")
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


def _picture(matrix: Tensor, classes: tuple[str, ...], says: str) -> Html:
    """Of many classes, with the largest cells to point at: rows from above, columns from the left."""
    count_ = len(classes)
    image = picture(_shares(matrix), f"confusion matrix of {count_} classes, {says}")
    images, place = matrix.flatten().topk(min(POINTED_AT, matrix.numel()))
    totals = matrix.sum(1).tolist()
    cells = [
        tag(
            "rect",
            tag("title", f"{classes[true]} → {classes[said]}: {number:,} of {count(totals[true], 'image')}"),
            x=said,
            y=true,
            width=1,
            height=1,
        )
        for number, (true, said) in zip(images.tolist(), (divmod(at, count_) for at in place.tolist()), strict=True)
        if number
    ]
    overlay = tag("svg", *cells, viewBox=f"0 0 {count_} {count_}", aria_hidden="true")
    caption_ = tag("figcaption", "↓ true class, → predicted class, both in the order of their names")
    return tag("figure", tag("div", image, overlay, class_="heat"), caption_, class_="matrix large")


def _pairs(matrix: Tensor, classes: tuple[str, ...]) -> Html:
    """The most common confusions; of many classes more of them, and sorted by number all the same."""
    has_many = len(classes) > MOST_CLASSES
    wrong = matrix.clone().fill_diagonal_(0).flatten()
    images, place = wrong.topk(min(LISTED_OF_MANY if has_many else LISTED, len(wrong)))
    rows = [
        tag("li", tag("span", classes[at // len(classes)], " → ", classes[at % len(classes)]), tag("b", f"{number:,}"))
        for number, at in zip(images.tolist(), place.tolist(), strict=True)
        if number
    ]
    if not rows:
        return tag("p", "Every test image was classified correctly.")
    ranking = tag("ol", *rows, class_="ranking")
    heading = tag("h3", "Most common confusions")
    return tag("div", heading, searchable("Find a class", ranking) if has_many else ranking)
