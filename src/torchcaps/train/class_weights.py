"""How much the images of each class count in the loss."""

import torch
from torch import Tensor

from torchcaps.errors import OptionError
from torchcaps.train.recipe import ClassWeights


def class_weights(setting: ClassWeights, labels: Tensor, classes: tuple[str, ...]) -> Tensor | None:
    """A factor per class ``[classes]``, 1 in the mean over the training images with labels ``[N]``; None for all 1.

    >>> class_weights("balanced", torch.tensor([0, 0, 0, 1]), ("common", "rare"))
    tensor([0.6667, 2.0000])
    """
    if setting == "none":
        return None
    count = torch.bincount(labels, minlength=len(classes)).double()  # [classes]
    if setting == "balanced":
        weight = 1 / count.clamp(min=1)
    else:
        weight = torch.tensor(setting, dtype=torch.float64)
        if len(weight) != len(classes):
            raise OptionError(
                f"class_weights has {len(weight)} numbers, expected {len(classes)}: one per class, in the order "
                f"{', '.join(classes)}"
            )
    return (weight * count.sum() / (weight * count).sum()).float()
