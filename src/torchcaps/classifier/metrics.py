"""Figures of an evaluation beyond its error (extra ``cli``: torchmetrics computes them)."""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.errors import UserError

TOP = 5  # the k of the top-k error
BINS = 15  # of the calibration error, as in most papers
Column = list[float | None]


class OfClass(NamedTuple):
    """How well one class is found; None where there is nothing to divide by."""

    name: str
    images: int
    wrong: int  # of these images
    precision: float | None  # share of the images predicted to be of the class that are; None: never predicted
    recall: float | None  # share of the images of the class that are found; None: no images
    f1: float | None  # the harmonic mean of the two; None: neither images nor predictions


def figures_of_classes(evaluation: Evaluation) -> list[OfClass]:
    """Precision, recall and F1 of each class."""
    metrics = import_metrics()
    images, predicted = evaluation.confusion.sum(1), evaluation.confusion.sum(0)  # [classes]
    given: dict[str, Any] = {"num_classes": len(evaluation.classes), "average": None}

    def known(values: Tensor, is_known: Tensor) -> Column:
        return [value if known else None for value, known in zip(values.tolist(), is_known.tolist(), strict=True)]

    precision = known(metrics.multiclass_precision(evaluation.predicted, evaluation.label, **given), predicted > 0)
    recall = known(metrics.multiclass_recall(evaluation.predicted, evaluation.label, **given), images > 0)
    f1 = known(metrics.multiclass_f1_score(evaluation.predicted, evaluation.label, **given), images + predicted > 0)
    shares = zip(precision, recall, f1, strict=True)
    return [OfClass(*counts, *of_class) for counts, of_class in zip(evaluation.by_class(), shares, strict=True)]


def top_error(evaluation: Evaluation) -> float | None:
    """The share of images whose class is not among the five of the highest activations; of more than five classes."""
    classes = len(evaluation.classes)
    if classes <= TOP:
        return None
    found = import_metrics().multiclass_accuracy(
        evaluation.activation.nan_to_num(), evaluation.label, num_classes=classes, top_k=TOP, average="micro"
    )
    images = len(evaluation.label)
    return (images - round(float(found) * images)) / images  # of the whole number, which single precision blurs


def calibration_error(evaluation: Evaluation) -> float:
    """The expected calibration error: how far confidence and accuracy lie apart.

    The activations of an image, divided by their sum, are taken for probabilities, and that of the predicted class for
    its confidence. Images are sorted into 15 bins of equal width by their confidence; the error is the mean over the
    bins, by their numbers of images, of the distance between mean confidence and accuracy.
    """
    shares = probabilities(evaluation.activation)  # [N, classes]
    # torchmetrics, in single precision, gives a confidence of 1 a bin of its own: here it is in the last of the 15.
    shares = shares.clamp(max=1 - torch.finfo(torch.float32).eps)
    found = import_metrics().multiclass_calibration_error(
        shares, evaluation.label, num_classes=shares.shape[1], n_bins=BINS, norm="l1"
    )
    return float(found)


def probabilities(activation: Tensor) -> Tensor:
    """Activations ``[N, classes]`` divided by their sums, as float64; all the same where the sum is zero."""
    positive = activation.double().nan_to_num().clamp(min=0)
    total = positive.sum(1, keepdim=True)  # [N, 1]
    return torch.where(total > 0, positive / total.clamp(min=torch.finfo(total.dtype).tiny), 1 / positive.shape[1])


def import_metrics() -> ModuleType:
    """The functions of torchmetrics, or what to install for them."""
    try:
        from torchmetrics.functional import classification
    except ImportError:
        raise UserError("precision, recall and calibration need torchmetrics: pip install 'torchcaps[cli]'") from None
    module: ModuleType = classification
    return module
