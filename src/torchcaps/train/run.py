"""A whole run: data, network, loop, test error, weights."""

import platform
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from torchcaps.classifier import Classifier, Evaluation, evaluate, save
from torchcaps.data import Splits, ViewpointSplits, list_sets
from torchcaps.data.loader import check_batches
from torchcaps.errors import OptionError, UserError
from torchcaps.runs import folder as run_folder
from torchcaps.runs.machine import cpu_name, usable_cores
from torchcaps.runs.metrics import read_rows
from torchcaps.runs.text import count
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.class_weights import class_weights
from torchcaps.train.devices import DEFAULT_PRECISION
from torchcaps.train.recipe import Recipe
from torchcaps.train.resume import describe_again, former_epochs, recorded_precision

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

    from torchcaps.train.loop import Resources
    from torchcaps.train.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a run leaves."""

    folder: Path
    classifier: Classifier
    splits: Splits
    evaluation: Evaluation | None  # on the test split; None where that was left alone
    familiar: Evaluation | None = None  # on the test images of familiar viewpoints, where the recipe has them apart


def train(
    recipe: Recipe,
    *,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    resources: "Resources | None" = None,
    console: Console | None = None,
    test: bool = True,
    callbacks: Sequence["Callback"] = (),
    loggers: Sequence["Logger"] = (),
) -> Finished | None:
    """Follow a recipe to its end, in a new run folder; or with ``resume`` continue in the folder of an interrupted run.

    A finished run is extended where the recipe has more epochs (`torchcaps.train.resume`). Of several processes the
    first one returns what the run leaves, the others nothing. Without ``test`` the test split is left alone: there is
    no test error. ``callbacks`` and ``loggers`` are Lightning's, beside ours.
    """
    require_lightning()
    from torchcaps.train.checkpoints import read_checkpoint_of
    from torchcaps.train.loop import Resources, is_first_process

    if not isinstance(recipe, Recipe):
        raise OptionError(f"recipe is {recipe!r}, expected a recipe, as in train(recipe('mnist-frem'))")
    output, resume = (None if path is None else Path(path) for path in (output, resume))
    resources = resources or Resources()
    first = is_first_process()
    console = console or Console(quiet=not first)
    if resume is not None and not (resume / run_folder.RUN).is_file():
        raise run_folder.RunFolderError(f"{resume} is not the folder of a training run: there is nothing to resume")
    former: tuple[int, ...] = ()
    if resume is not None:
        former = former_epochs(resume, recipe.optimisation.epochs, check=first)
        resources = replace(resources, precision=resources.precision or recorded_precision(resume))
    begun = resume is not None and (resume / run_folder.LAST).is_file()
    recipe = with_absolute_paths(recipe)
    splits = load_data(recipe)
    torch.manual_seed(recipe.optimisation.seed)
    classifier = make_classifier(recipe, splits, make_pipeline(recipe, splits), begun=begun)
    check_batches(len(splits.train), recipe.optimisation.batch_size, resources.processes)  # before there is a folder
    class_weights(recipe.optimisation.class_weights, splits.train.labels, splits.classes)  # too
    folder = resume or (run_folder.create(recipe.name, output) if first else Path())
    with run_folder.locked(folder) if first else nullcontext():
        if first and resume is None:
            describe(folder, recipe, splits, resources)
        elif first:
            if begun:  # nothing is changed in a run that cannot go on
                read_checkpoint_of(classifier.network, folder / run_folder.LAST)
            describe_again(folder, recipe.optimisation.epochs, former, how(resources))
        lightning = {"callbacks": callbacks, "loggers": loggers}
        resumed = resume is not None
        return _train_in(folder, recipe, splits, classifier, resources, console, resumed, former, test, lightning)


def _train_in(
    folder: Path,
    recipe: Recipe,
    splits: Splits,
    classifier: Classifier,
    resources: "Resources",
    console: Console,
    resume: bool,
    former: tuple[int, ...],
    test: bool,
    lightning: dict[str, Any],
) -> Finished | None:
    from torchcaps.train.loop import follow, is_first_process

    first = is_first_process()
    say = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    say(f"{recipe.name}: {len(splits.train):,} training images; {splits.note}")
    say(f"run folder: {folder}")
    has_checkpoint = (folder / run_folder.LAST).is_file()
    if resume and not has_checkpoint:
        say("no checkpoint yet: starting from the beginning")
    metrics = follow(
        recipe,
        classifier,
        splits.train,
        splits.validation,
        folder,
        resources=resources,
        console=console,
        resume=resume and has_checkpoint,
        former_epochs=former,
        **lightning,
    )
    if not first:
        return None
    evaluation = evaluate([classifier], splits.test) if test else None
    familiar = evaluate([classifier], splits.familiar) if test and isinstance(splits, ViewpointSplits) else None
    result = summary(recipe, metrics, evaluation, familiar)
    classifier.card["result"] = result
    save(classifier, folder)
    run_folder.write_json(folder / run_folder.RESULT, result)
    if evaluation is not None:
        if familiar is not None:
            say(f"error on familiar {recipe.data.viewpoint}s: {100 * familiar.error:.2f} %")
        say(f"test error: {100 * evaluation.error:.2f} %")
    return Finished(folder=folder, classifier=classifier, splits=splits, evaluation=evaluation, familiar=familiar)


def how(resources: "Resources") -> dict[str, Any]:
    """What a run computes with, as far as it may change when it is resumed."""
    return {
        "processes": resources.processes,
        "device": resources.accelerator,
        "precision": resources.precision or DEFAULT_PRECISION,
    }


def describe(folder: Path, recipe: Recipe, splits: Splits, resources: "Resources") -> None:
    """Write what the run is, before it begins."""
    about = {
        "recipe": recipe.as_json(),
        "name": recipe.name,
        "seed": recipe.optimisation.seed,
        "versions": {name: version(name) for name in ("torchcaps", "torch", "lightning")}
        | {"python": platform.python_version()},
        "machine": f"{cpu_name()}, {count(usable_cores(), 'core')}",
        "threads": torch.get_num_threads(),
        **how(resources),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {
            "set": recipe.data.data,
            "note": splits.note,
            "classes": list(splits.classes),
            "train": len(splits.train),
            "validation": 0 if splits.validation is None else len(splits.validation),
            "test": len(splits.test),
        }
        | ({"familiar": len(splits.familiar)} if isinstance(splits, ViewpointSplits) else {}),
    }
    run_folder.write_json(folder / run_folder.RUN, about)


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """So that a run can be resumed and evaluated from any folder."""
    root = None if recipe.data.root is None else recipe.data.root.expanduser().resolve()
    folder = Path(recipe.data.data).expanduser()
    is_folder = recipe.data.data not in list_sets() and folder.is_dir()
    source = recipe.network.pretrained
    if source is not None and (run := Path(source).expanduser()).exists():
        source = str(run.resolve())
    data = str(folder.resolve()) if is_folder else recipe.data.data
    return recipe.with_just(data=data, root=root, pretrained=source)


def summary(
    recipe: Recipe, metrics: "Metrics", evaluation: Evaluation | None, familiar: Evaluation | None
) -> dict[str, Any]:
    """The run in numbers."""
    settings = recipe.optimisation
    rows = read_rows(metrics.path)
    steps = int(rows[-1]["step"] or 0) if rows else 0
    has_best = (metrics.path.parent / run_folder.BEST).is_file()
    validation = [error for row in rows if (error := row["validation_error"]) is not None]
    return {
        "test_error": None if evaluation is None else evaluation.error,
        "test_images": 0 if evaluation is None else len(evaluation.label),
        "familiar_error": None if familiar is None else familiar.error,
        "validation_error": validation[-1] if validation else None,
        "best_validation_error": min(validation) if validation else None,
        "weights": "mean" if settings.average_epochs else settings.weights if has_best else "last",
        "epochs": round(rows[-1]["epoch"] or 0) if rows else 0,  # fewer than planned where it stopped early
        "steps": steps,
        "seconds": metrics.seconds,
        "images_per_second": settings.batch_size * steps / max(1e-9, metrics.seconds),
    }


def require_lightning() -> None:
    """Raise where the extra is not installed."""
    for name in ("lightning", "safetensors", "tensorboard"):
        if find_spec(name) is None:
            raise UserError(f"training needs {name}: pip install 'torchcaps[train]'")
