"""Networks by name: ``create_model("hybrid64", num_classes=5)``."""

from torchcaps.models.cnn import BaselineCnn
from torchcaps.models.hybrid import HYBRID32, HYBRID64, HybridNetwork, Stage
from torchcaps.models.network import Network
from torchcaps.models.pretrained import PretrainedError, list_pretrained, shipped_folder
from torchcaps.models.registry import create_model, list_models, network_class, register_model

__all__ = [
    "HYBRID32",
    "HYBRID64",
    "BaselineCnn",
    "HybridNetwork",
    "Network",
    "PretrainedError",
    "Stage",
    "create_model",
    "list_models",
    "list_pretrained",
    "network_class",
    "register_model",
    "shipped_folder",
]
