"""Few images: a pretrained network fine-tuned, with and without its body frozen, against training from scratch."""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import torchcaps
from torchcaps.classifier import evaluate
from torchcaps.data import ImageSet, load
from torchcaps.runs.text import Table, percent
from torchcaps.train.assemble import spread_indices
from torchcaps.train.fine_tuning import pretrained_fields

BATCH = 10


class Found(NamedTuple):
    way: str
    errors: list[float]  # one for each seed


def ways(pretrained: str) -> dict[str, dict[str, Any]]:
    """What `fit` gets besides the images; always the same network and rates."""
    same = pretrained_fields(pretrained)
    return {
        "fine-tuned": {"pretrained": pretrained},
        "fine-tuned with a frozen body": {"pretrained": pretrained, "freeze": True},
        "trained from scratch": {name: value for name, value in same.items() if name != "camera"},
    }


def choose(labels: Tensor, per_class: int, seed: int) -> Tensor:
    """Indices of so many random images of each class, ascending ``[classes * per_class]``."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))  # [N]
    chosen = [order[labels[order] == label][:per_class] for label in range(int(labels.max()) + 1)]
    return torch.cat(chosen).sort().values


def compare(data: ImageSet, pretrained: str, *, per_class: int, seeds: Sequence[int], epochs: int) -> Iterator[Found]:
    """The errors of each way on the test split of a data set; of a seed, all ways get the same images."""
    for way, fields in ways(pretrained).items():
        errors = []
        for seed in seeds:
            few = data.train.take(choose(data.train.labels, per_class, seed))
            settings = {"validation": "none", "batch_size": BATCH, "epochs": epochs, "seed": seed, **fields}
            classifier = torchcaps.fit(few.images, few.labels, progress=False, **settings)
            errors.append(evaluate([classifier], data.test).error)
        yield Found(way, errors)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist", help="the data set that is trained and tested on")
    parser.add_argument("--pretrained", default="fashion-mnist", help="the network that is fine-tuned")
    parser.add_argument("--root", type=Path, help="the folder of the data set's files")
    parser.add_argument("--per-class", type=int, default=10, help="training images of each class")
    parser.add_argument("--test-images", type=int, default=2000, help="of the test split, spread evenly over it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args(arguments)
    data = load(given.data, root=given.root)
    data = replace(data, test=data.test.take(spread_indices(data.test.labels, given.test_images)))
    found = compare(data, given.pretrained, per_class=given.per_class, seeds=given.seeds, epochs=given.epochs)
    rows = [
        [way, percent(statistics.mean(errors)), ", ".join(percent(error) for error in errors)] for way, errors in found
    ]
    print(Table("", ["", "test error", "by seed"], rows).as_markdown())


if __name__ == "__main__":
    main()
