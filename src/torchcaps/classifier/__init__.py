"""A trained network with all that it needs to be used: how its input is prepared, and what its classes are called."""

from torchcaps.classifier.classifier import Classifier, Epoch, Predictions
from torchcaps.classifier.evaluation import Evaluation, evaluate
from torchcaps.classifier.explain import Explanation, Method, explain, heat_overlay
from torchcaps.classifier.files import load, save

__all__ = [
    "Classifier",
    "Epoch",
    "Evaluation",
    "Explanation",
    "Method",
    "Predictions",
    "evaluate",
    "explain",
    "heat_overlay",
    "load",
    "save",
]
