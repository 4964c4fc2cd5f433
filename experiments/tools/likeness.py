"""How much of their input the reconstructions of the shipped networks show."""

from pathlib import Path

import torch
import tyro

from torchcaps import data
from torchcaps.classifier import evaluate, load
from torchcaps.models import list_pretrained
from torchcaps.report.likeness import IMAGES, likeness
from torchcaps.report.samples import Subject
from torchcaps.train.assemble import spread_indices


@torch.inference_mode()
def of_network(name: str, root: Path | None) -> str:
    """A line for the network that was trained on a set."""
    classifier = load(name)
    trained_on = classifier.card["recipe"]["data"]
    test = data.load(trained_on["data"], root=root, camera=trained_on["camera"]).test
    test = test.take(spread_indices(test.labels, IMAGES))
    subject = Subject(classifier, test, evaluate([classifier], test))
    found = likeness(subject) if subject.has_decoder else None
    return f"{name}: {found.words if found else 'no decoder'}"


def main(root: Path | None = None) -> None:
    """Measure on test images.

    Args:
        root: A folder with the folders of the sets; default: where `torchcaps data list` finds them.
    """
    for name in list_pretrained():
        print(of_network(name, root))


if __name__ == "__main__":
    tyro.cli(main)
