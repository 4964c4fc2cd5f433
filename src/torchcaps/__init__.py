"""Capsule layers for PyTorch that cost little more than convolutions."""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from torchcaps import _environment as _environment  # first: it is for torch, which all others import
from torchcaps import functional, models, nn
from torchcaps.models import create_model, list_models, list_pretrained
from torchcaps.nn import record_routing
from torchcaps.ops.backend import BackendUnavailableError, use_backend
from torchcaps.types import Capsules, Classified, Routed, Scores

if TYPE_CHECKING:
    from torchcaps.classifier import Classifier, load
    from torchcaps.train import fit

__version__ = _version("torchcaps")

__all__ = [
    "BackendUnavailableError",
    "Capsules",
    "Classified",
    "Classifier",
    "Routed",
    "Scores",
    "__version__",
    "create_model",
    "fit",
    "functional",
    "list_models",
    "list_pretrained",
    "load",
    "models",
    "nn",
    "record_routing",
    "use_backend",
]

# What needs more than torch is imported at its first use: the layers alone stay light.
_LATER = {"Classifier": "torchcaps.classifier", "load": "torchcaps.classifier", "fit": "torchcaps.train"}
_PARTS = ("bench", "classifier", "data", "report", "runs", "train")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"torchcaps.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'torchcaps' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
