"""Images that everyone can make, and what a network says of them: whether it still computes what it did."""

import numpy as np
import torch

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.types import Split

IMAGES, BLOCK = 4, 4


def noise(classifier: Classifier) -> Split:
    """Images of random squares, at the size from which the network's crops are taken."""
    side = classifier.source_size
    blocks = -(-side // BLOCK)
    random = np.random.RandomState(0)  # the one generator whose numbers NumPy promises never to change
    coarse = random.randint(0, 256, (IMAGES, classifier.network.in_channels, blocks, blocks)).astype(np.uint8)
    fine = coarse.repeat(BLOCK, 2).repeat(BLOCK, 3)[:, :, :side, :side]  # [IMAGES, C, side, side]
    return Split(torch.from_numpy(fine.copy()), torch.zeros(IMAGES, dtype=torch.int64))


def activations_of_noise(classifier: Classifier) -> list[list[float]]:
    """Class activations ``[IMAGES, classes]``."""
    found: list[list[float]] = classifier.activations(classifier.prepare(noise(classifier))).tolist()
    return found
