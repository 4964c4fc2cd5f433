"""The wrong predictions: those with the highest activations as pictures, and the files of all."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torchcaps.data.captions import cut_to_fit
from torchcaps.report.links import file_link
from torchcaps.report.markup import Html, Section, lead, searchable, section, tag
from torchcaps.report.pictures import picture
from torchcaps.report.samples import Subject
from torchcaps.runs.text import NOTHING, count

MOST = 12
MOST_FILES = 1000  # in the list of files
LONGEST_NAME = 40  # characters under a picture


def mistakes(subject: Subject, *, page: Path, data: Path) -> Section:
    """By the activation of the wrong class, highest first; with links from the ``page``'s folder to the files.

    ``data`` is the folder of the images, where they have files.
    """
    evaluation = subject.evaluation
    if not evaluation.wrong:
        return section("mistakes", "Worst mistakes", lead("None: every test image was classified correctly."))
    activation = evaluation.activation.nan_to_num().amax(1)  # [N]
    wrong = (evaluation.predicted != evaluation.label).nonzero().squeeze(1)  # [wrong]
    worst = wrong[activation[wrong].argsort(descending=True, stable=True)]  # [wrong]

    files = _Files(subject, page, data)
    cards = []
    for image, index in zip(subject.crops(worst[:MOST]), worst[:MOST].tolist(), strict=True):
        label, said = int(evaluation.label[index]), int(evaluation.predicted[index])
        true, taken = evaluation.classes[label], evaluation.classes[said]
        values = evaluation.activation[index]
        cards.append(
            tag(
                "li",
                picture(image, f"test image {index}: {true}, classified as {taken}"),
                _line("guess", taken, float(values[said]), "mistaken"),
                _line("true", true, float(values[label]), ""),
                files.link(index),
                title=f"test image {index}",
            )
        )
    shown = f"The {len(cards)} of " if len(cards) < evaluation.wrong else "The "
    says = (
        f"{shown}{count(evaluation.wrong, 'wrong prediction')} with the highest activation, and that of the true class."
    )
    parts = [lead(says, subject.note), tag("ul", *cards, class_="mistakes")]
    if subject.test.files and len(cards) < evaluation.wrong:
        parts.append(files.list(worst.tolist()))
    return section("mistakes", "Worst mistakes", *parts)


class _Files(NamedTuple):
    """The files of test images."""

    subject: Subject
    page: Path
    data: Path

    def link(self, index: int) -> Html:
        """To that of an image, if it has one."""
        files = self.subject.test.files
        return file_link(files[index], page=self.page, data=self.data) if files else Html()

    def list(self, wrong: Sequence[int]) -> Html:
        """Of all images that are wrong."""
        evaluation = self.subject.evaluation
        labels, said = evaluation.label.tolist(), evaluation.predicted.tolist()
        rows = [
            tag(
                "li",
                self.link(index),
                tag("span", f"{evaluation.classes[labels[index]]} → {evaluation.classes[said[index]]}"),
            )
            for index in wrong[:MOST_FILES]
        ]
        which = "All" if len(rows) == len(wrong) else f"The first {len(rows):,} of"
        heading = tag("summary", f"{which} {count(len(wrong), 'misclassified image')}")
        return tag("details", heading, searchable("Find a file or class", tag("ol", *rows, class_="ranking files")))


def _line(what: str, name: str, value: float, style: str) -> Html:
    number = f"{value:.2f}" if math.isfinite(value) else NOTHING
    shown = cut_to_fit(name, lambda text: len(text) <= LONGEST_NAME)
    return tag("p", tag("small", what), tag("b", number), tag("span", shown, class_=style, title=name))
