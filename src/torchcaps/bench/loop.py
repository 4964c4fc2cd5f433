"""Part 5: what the training loop adds to the bare step: loader, metrics, progress, checkpoints' state, Lightning."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from torchcaps.bench.devices import clock_of
from torchcaps.bench.measure import Note
from torchcaps.bench.plan import Plan
from torchcaps.classifier import Classifier
from torchcaps.data import BatchLoader, ImageSet, Split, Splits, make_splits
from torchcaps.train.assemble import make_classifier, make_pipeline
from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import recipe

NETWORKS = ("frem", "cnn")
SIDE = 96


def measure_loop(plan: Plan, note: Note) -> dict[str, Any]:
    """Seconds of a step in the loop and of the bare step, by network, round by round; both where the loop trains."""
    steps = plan.loop_steps
    images = torch.randint(256, ((steps + 20) * plan.batch, 1, SIDE, SIDE), dtype=torch.uint8)
    split = Split(images, torch.arange(len(images)) % 5)
    splits = make_splits(ImageSet("turntable", tuple("abcde"), split, split), validation="none")
    seconds: dict[str, list[float]] = {f"{network}/{what}": [] for network in NETWORKS for what in ("bare", "loop")}
    for turn in range(plan.loop_rounds):
        for network in NETWORKS:
            note(f"round {turn + 1} of {plan.loop_rounds}: {network}")
            follows = recipe(f"turntable-{network}-small", epochs=1, batch_size=plan.batch, validation="none")
            seconds[f"{network}/bare"].append(bare_step(follows, splits, steps))
            seconds[f"{network}/loop"].append(loop_step(follows, splits, steps))
    return {"batch": plan.batch, "seconds": seconds}


def network_of(follows: Recipe, splits: Splits) -> Classifier:
    torch.manual_seed(follows.optimisation.seed)
    return make_classifier(follows, splits, make_pipeline(follows, splits))


def bare_step(follows: Recipe, splits: Splits, steps: int) -> float:
    """Forward, loss, backward and optimiser on one batch again and again: seconds of a step."""
    from torchcaps.train.devices import accelerator
    from torchcaps.train.module import TrainingModule

    classifier, device = network_of(follows, splits), accelerator()
    settings: dict[str, Any] = {"batch_size": follows.optimisation.batch_size, "train": True, "device": device}
    loader = BatchLoader(splits.train, classifier.pipeline, **settings)
    batch = next(iter(loader))
    module = TrainingModule(classifier.network, follows, len(loader)).to(device)
    optimizer = module.configure_optimizers()["optimizer"]

    def run(count: int) -> None:
        for _ in range(count):
            output = module.network(batch.image)
            optimizer.zero_grad()
            torch.autograd.backward(list(module.losses(output, batch).values()))
            optimizer.step()

    run(1)  # warms up
    return clock_of(device)(lambda: run(steps)) / steps


def loop_step(follows: Recipe, splits: Splits, steps: int) -> float:
    """The same in the real loop, by the clock in its metrics."""
    from torchcaps.runs.metrics import read_rows
    from torchcaps.train.loop import Resources, follow

    with tempfile.TemporaryDirectory() as folder:
        quiet = Console(quiet=True)
        classifier = network_of(follows, splits)
        follow(follows, classifier, splits.train, None, Path(folder), resources=Resources(), console=quiet)
        rows = {int(row["step"] or 0): row["seconds"] or 0.0 for row in read_rows(Path(folder) / "metrics.csv")}
    return (rows[steps + 10] - rows[10]) / steps
