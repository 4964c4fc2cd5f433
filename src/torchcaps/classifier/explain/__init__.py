"""Where in the image a prediction comes from: several methods, the same face."""

from torchcaps.classifier.explain.explanation import Explanation, explain
from torchcaps.classifier.explain.methods import CAPTIONS, DEFAULT, Method
from torchcaps.classifier.explain.overlay import colour_scale, heat_overlay

__all__ = ["CAPTIONS", "DEFAULT", "Explanation", "Method", "colour_scale", "explain", "heat_overlay"]
