"""The wrong predictions with the highest activations."""

import math

from torchcaps.report.markup import Html, Section, lead, section, tag
from torchcaps.report.pictures import picture
from torchcaps.report.samples import Subject
from torchcaps.runs.text import NOTHING, count

MOST = 12


def mistakes(subject: Subject) -> Section:
    """By the activation of the wrong class, highest first."""
    evaluation = subject.evaluation
    if not evaluation.wrong:
        return section("mistakes", "Worst mistakes", lead("None: every test image was classified correctly."))
    activation = evaluation.activation.nan_to_num().amax(1)  # [N]
    wrong = (evaluation.predicted != evaluation.label).nonzero().squeeze(1)  # [wrong]
    worst = wrong[activation[wrong].argsort(descending=True, stable=True)[:MOST]]
    cards = []
    for image, index in zip(subject.crops(worst), worst.tolist(), strict=True):
        label, said = int(evaluation.label[index]), int(evaluation.predicted[index])
        true, taken = evaluation.classes[label], evaluation.classes[said]
        values = evaluation.activation[index]
        cards.append(
            tag(
                "li",
                picture(image, f"test image {index}: {true}, classified as {taken}"),
                _line("guess", taken, float(values[said]), "mistaken"),
                _line("true", true, float(values[label]), ""),
                title=f"test image {index}",
            )
        )
    shown = f"The {len(cards)} of " if len(cards) < evaluation.wrong else "The "
    says = (
        f"{shown}{count(evaluation.wrong, 'wrong prediction')} with the highest activation, and that of the true class."
    )
    return section("mistakes", "Worst mistakes", lead(says, subject.note), tag("ul", *cards, class_="mistakes"))


def _line(what: str, name: str, value: float, style: str) -> Html:
    number = f"{value:.2f}" if math.isfinite(value) else NOTHING
    return tag("p", tag("small", what), tag("span", name, class_=style), tag("b", number))
