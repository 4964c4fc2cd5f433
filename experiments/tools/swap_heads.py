"""What decides on new objects: the convolutions, or the head after them?

``python -m experiments.tools.swap_heads`` takes a network with class capsules and a CNN with the same convolutions, and
trains, on the convolutions of each, held as they are, a new head of either kind. It prints the errors on toys that were
held out of training. The test split is left alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from rich.console import Console
from torch import nn

import torchcaps
from experiments.trials import HARD_FOLDS, TRIALS
from torchcaps.classifier import Classifier, evaluate
from torchcaps.data import Pipeline, Splits
from torchcaps.data.loader import BatchLoader
from torchcaps.models import HybridNetwork, Network
from torchcaps.nn.norm import Convolution
from torchcaps.runs.folder import RESULT, RUN
from torchcaps.runs.text import Table, percent
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.devices import Precision
from torchcaps.train.loop import Resources
from torchcaps.train.module import TrainingModule
from torchcaps.train.recipe import Recipe
from torchcaps.train.run import train

NAMES = {"FREM": "head-cutmix-at-first-6-epochs", "CNN": "cnn-cutmix-at-first-6-epochs"}  # of trials


@dataclass(frozen=True, kw_only=True)
class Swap:
    """How bodies and heads are trained, and where bodies are kept."""

    runs: Path
    precision: Precision
    head_epochs: int

    def errors(self, recipes: dict[str, Recipe]) -> Iterator[tuple[str, str, float]]:
        """The kinds of body and head, and the error on what is held out; the recipes differ in the network alone."""
        splits = load_data(next(iter(recipes.values())))
        for body, of_body in recipes.items():
            trained = self.body(of_body)
            yield body, "its own", error_of(trained, splits)
            for head, of_head in recipes.items():
                pipeline = make_pipeline(of_head, splits)
                torch.manual_seed(of_head.optimisation.seed)
                classifier = make_classifier(of_head, splits, pipeline)
                put_body(trained.network, classifier.network)
                self.train_head(classifier.network, of_head, splits, pipeline)
                yield body, head, error_of(classifier, splits)

    def body(self, settings: Recipe) -> Classifier:
        """A network trained by the recipe; one that is there already is not trained again."""
        folder = self.runs / settings.name
        if not (folder / RESULT).is_file():
            begun = (folder / RUN).is_file()
            train(
                settings,
                output=None if begun else folder,
                resume=folder if begun else None,
                resources=Resources(precision=None if begun else self.precision),
                console=Console(stderr=True),
                test=False,
            )
        return torchcaps.load(folder)

    def train_head(self, network: Network, settings: Recipe, splits: Splits, pipeline: Pipeline) -> None:
        """Train all but the convolutions of the body, with the recipe's loss, rates and mixed images."""
        short = settings.with_just(epochs=self.head_epochs)
        loader = BatchLoader(
            splits.train,
            pipeline,
            batch_size=short.optimisation.batch_size,
            train=True,
            seed=short.optimisation.seed,
            mixing=short.mixing,
        )
        module = TrainingModule(network, short, len(loader))
        body = nn.ModuleList(body_of(network))
        body.requires_grad_(False)
        chosen = module.configure_optimizers()
        optimizer, schedule = chosen["optimizer"], chosen["lr_scheduler"]["scheduler"]
        network.train()
        body.eval()  # with the statistics that its norms have
        for _ in range(self.head_epochs):
            for batch in loader:
                with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
                    loss = torch.stack(list(module.losses(network(batch.image), batch).values())).sum()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
        network.eval()


def body_of(network: Network) -> list[nn.Module]:
    """The convolutions that capsules and CNN have in common, and their norms."""
    found = [part for part in network.modules() if isinstance(part, Convolution)]
    pairs = [(part.conv, part.norm) for part in found]
    if isinstance(network, HybridNetwork):
        pairs.append((network.primary.pose, network.primary.norm))
    return [part for pair in pairs for part in pair if part is not None]


def put_body(source: Network, target: Network) -> None:
    """Give a network the convolutions of another."""
    for theirs, mine in zip(body_of(source), body_of(target), strict=True):
        mine.load_state_dict(theirs.state_dict())


def error_of(classifier: Classifier, splits: Splits) -> float:
    """On what is held out, 0 to 1."""
    assert splits.validation is not None
    return evaluate([classifier], splits.validation).error


def table(found: dict[tuple[str, str], list[float]], folds: Sequence[int]) -> Table:
    """Errors of each body with each head, by fold."""
    columns = ["convolutions of", "head", *(f"fold {fold}" for fold in folds), "mean"]
    rows = [
        [body, head, *(percent(error) for error in errors), percent(sum(errors) / len(errors))]
        for (body, head), errors in found.items()
    ]
    return Table("", columns, rows)


def main(
    folds: tuple[int, ...] = HARD_FOLDS,
    runs: Path = Path("runs/experiments/trials"),
    precision: Precision = "32",
    head_epochs: int = 4,
) -> None:
    """Print the errors of each body with each head.

    Args:
        folds: Which toys are held out, one of each class.
        runs: The folders of the trials' runs; those that are missing are trained.
        precision: As of torchcaps train.
        head_epochs: Epochs in which a new head is trained.
    """
    swap = Swap(runs=runs, precision=precision, head_epochs=head_epochs)
    found: dict[tuple[str, str], list[float]] = {}
    for fold in folds:
        recipes = {kind: recipe_of(name, fold) for kind, name in NAMES.items()}
        for body, head, error in swap.errors(recipes):
            found.setdefault((body, head), []).append(error)
    print(table(found, folds).as_markdown())


def recipe_of(name: str, fold: int) -> Recipe:
    """That of a trial in a fold."""
    name += f"-fold-{fold}" * (fold > 0)
    return next(trial.recipe for trial in TRIALS if trial.name == name).with_just(name=name)


if __name__ == "__main__":
    tyro.cli(main)
