"""Trained networks in the package: ``create_model("hybrid32", pretrained="mnist")``, ``torchcaps.load("mnist")``."""

from torchcaps.pretrained.shipped import PretrainedError, list_pretrained, shipped_folder

__all__ = ["PretrainedError", "list_pretrained", "shipped_folder"]
