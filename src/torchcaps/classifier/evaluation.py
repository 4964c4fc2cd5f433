"""How often one classifier, or several together, are wrong."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.types import DataError, Split


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The activations of a split's images beside what they are."""

    classes: tuple[str, ...]
    label: Tensor  # [N] int64, the truth
    activation: Tensor  # [N, classes]

    @property
    def predicted(self) -> Tensor:
        """The class of the highest activation ``[N]``."""
        return self.activation.argmax(1)

    @property
    def wrong(self) -> int:
        """Number of images whose class was not found."""
        return int((self.predicted != self.label).sum())

    @property
    def error(self) -> float:
        """The share of images whose class was not found, 0 to 1."""
        return self.wrong / len(self.label)

    @property
    def interval(self) -> tuple[float, float]:
        """The error's 95 % interval: that of Wilson, which also holds for few images and near 0 and 1."""
        n, z = len(self.label), 1.959963984540054
        centre = (self.wrong + z * z / 2) / (n + z * z)
        half = z / (n + z * z) * math.sqrt(self.wrong * (n - self.wrong) / n + z * z / 4)
        return max(0.0, centre - half), min(1.0, centre + half)

    @property
    def confusion(self) -> Tensor:
        """Counts ``[true class, predicted class]``."""
        count = len(self.classes)
        return torch.bincount(self.label * count + self.predicted, minlength=count * count).reshape(count, count)

    def by_class(self) -> list[tuple[str, int, int]]:
        """Of each class its name, the number of its images, and how many of them were not found."""
        images, right = self.confusion.sum(1).tolist(), self.confusion.diagonal().tolist()
        return [(name, n, n - r) for name, n, r in zip(self.classes, images, right, strict=True)]


def evaluate(classifiers: Sequence[Classifier], split: Split, *, crops: int = 1) -> Evaluation:
    """Evaluate one classifier, or the mean of the activations of several (an ensemble)."""
    return ensemble(evaluate_each(classifiers, split, crops=crops))


def evaluate_each(classifiers: Sequence[Classifier], split: Split, *, crops: int = 1) -> list[Evaluation]:
    """Evaluate classifiers one by one."""
    if not classifiers or not len(split):
        raise DataError(f"{len(classifiers)} networks on {len(split)} images: expected at least one of each")
    found = []
    for classifier in classifiers:
        if not 0 <= int(split.labels.min()) <= int(split.labels.max()) < len(classifier.classes):
            raise DataError(f"labels are not all in 0 to {len(classifier.classes) - 1}, the classes of the network")
        activation = classifier.activations(classifier.prepare(split), crops=crops)
        found.append(Evaluation(classes=classifier.classes, label=split.labels, activation=activation))
    return found


def ensemble(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The mean of the activations of evaluations on the same images."""
    first = evaluations[0]
    for other in evaluations:
        if other.classes != first.classes:
            raise DataError(
                f"the networks do not know the same classes: {', '.join(first.classes)}; and {', '.join(other.classes)}"
            )
    activation = torch.stack([evaluation.activation for evaluation in evaluations]).mean(0)  # [N, classes]
    return Evaluation(classes=first.classes, label=first.label, activation=activation)


def with_classes(split: Split, found: Sequence[str], expected: Sequence[str]) -> Split:
    """A split whose labels count the classes in the expected order; raises where the names are not the same."""
    if set(found) != set(expected):
        raise DataError(f"the images are of the classes {', '.join(found)}; the network knows {', '.join(expected)}")
    place = torch.tensor([expected.index(name) for name in found])  # [classes]
    return replace(split, labels=place[split.labels])
