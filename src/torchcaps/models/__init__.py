"""Networks by name: ``create_model("hybrid64", classes=5)``."""

from torchcaps.models.cnn import BaselineCnn
from torchcaps.models.hybrid import HYBRID32, HYBRID64, HybridNetwork, Stage
from torchcaps.models.network import Network
from torchcaps.models.registry import create_model, list_models, register_model

__all__ = [
    "HYBRID32",
    "HYBRID64",
    "BaselineCnn",
    "HybridNetwork",
    "Network",
    "Stage",
    "create_model",
    "list_models",
    "register_model",
]
