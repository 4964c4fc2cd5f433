"""Capsule layers for PyTorch that cost little more than convolutions."""

from importlib.metadata import version as _version

from torchcaps import _environment as _environment  # first: it is for torch, which all others import
from torchcaps import functional, models, nn
from torchcaps.models import create_model, list_models
from torchcaps.nn import record_routing
from torchcaps.ops.backend import BackendUnavailableError, use_backend
from torchcaps.types import Capsules, Classified, Routed, Scores

__version__ = _version("torchcaps")

__all__ = [
    "BackendUnavailableError",
    "Capsules",
    "Classified",
    "Routed",
    "Scores",
    "__version__",
    "create_model",
    "functional",
    "list_models",
    "models",
    "nn",
    "record_routing",
    "use_backend",
]
