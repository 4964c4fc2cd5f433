"""How often one classifier, or several together, are wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    def confusion(self) -> Tensor:
        """Counts ``[true class, predicted class]``."""
        count = len(self.classes)
        return torch.bincount(self.label * count + self.predicted, minlength=count * count).reshape(count, count)


def evaluate(classifiers: Sequence[Classifier], split: Split, *, crops: int = 1) -> Evaluation:
    """Evaluate one classifier, or the mean of the activations of several (an ensemble)."""
    if not classifiers or not len(split):
        raise DataError(f"{len(classifiers)} networks on {len(split)} images: wanted at least one of each")
    classes = classifiers[0].classes
    for other in classifiers[1:]:
        if other.classes != classes:
            raise DataError(
                f"the networks do not know the same classes: {', '.join(classes)}; and {', '.join(other.classes)}"
            )
    activations = [
        classifier.activations(classifier.pipeline.prepare(split), crops=crops) for classifier in classifiers
    ]
    return Evaluation(classes=classes, label=split.labels, activation=torch.stack(activations).mean(0))
