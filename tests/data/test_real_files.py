"""Known facts of the published sets, where they are on this machine (see `torchcaps data list`)."""

import pytest
import torch

from torchcaps import data
from torchcaps.data.locate import find_folder

# first ten labels, images of each class, and the mean of pixel / 255, of the training and the test images
FACTS = {
    "mnist": (
        [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        (0.13066, 0.13251),
    ),
    "fashion-mnist": ([9, 0, 0, 3, 0, 2, 7, 2, 5, 5], [6000] * 10, (0.28604, 0.28685)),
    "cifar10": ([6, 9, 9, 4, 1, 1, 2, 7, 8, 3], [5000] * 10, (0.47336, 0.47655)),
    "smallnorb": ([0, 1, 2, 3, 4, 0, 1, 2, 3, 4], [4860] * 5, (0.752, 0.749)),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    try:
        find_folder(name)
    except data.DataError:
        pytest.skip(f"{name} is not on this machine")
    found = data.load(name)
    labels, counts, means = FACTS[name]
    assert found.train.labels[:10].tolist() == labels
    assert torch.bincount(found.train.labels).tolist() == counts
    for split, mean in zip((found.train, found.test), means, strict=True):
        measured = sum(part.double().sum() for part in split.images.split(5000)) / split.images.numel() / 255
        assert measured.item() == pytest.approx(mean, abs=1e-3)  # smallNORB is also around as a JPEG copy
