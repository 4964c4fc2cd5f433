"""Training on a user's own images, in one call."""

import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.classifier.classifier import Classifier, Epoch
from torchcaps.data import Split, Splits
from torchcaps.data.arrays import Images
from torchcaps.data.own import OwnImages
from torchcaps.data.splits import Validation
from torchcaps.data.transforms import statistics_of
from torchcaps.errors import OptionError
from torchcaps.runs.folder import BEST, METRICS
from torchcaps.runs.metrics import read_rows
from torchcaps.runs.text import count
from torchcaps.train.assemble import folder_side, make_classifier, make_pipeline
from torchcaps.train.devices import DEFAULT_PRECISION, Device, Precision
from torchcaps.train.own_data import (
    OwnData,
    Reading,
    is_streamed,
    number_of_workers,
    own_images,
    own_validation,
    read,
)
from torchcaps.train.recipe import PART_OF, Recipe
from torchcaps.train.recipes import folder_recipe, for_own_images
from torchcaps.train.run import require_lightning

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

    from torchcaps.train.loop import Resources

OF_STORED_SETS = ("name", "data", "root", "full", "camera", "viewpoint", "checkpoint_every")
OUT_OF_SPACE = "training keeps its checkpoints in a temporary folder: free space there, or set TMPDIR to another disk"


def fit(
    images: Images | Dataset[Any] | str | Path,
    labels: Tensor | npt.ArrayLike | None = None,
    *,
    validation: Validation | tuple[Images, Tensor | npt.ArrayLike] | Dataset[Any] | str | Path = "auto",
    stream: bool | Literal["auto"] = "auto",
    workers: int | None = None,
    callbacks: Sequence["Callback"] = (),
    loggers: Sequence["Logger"] = (),
    device: Device = "auto",
    precision: Precision = DEFAULT_PRECISION,
    progress: bool = True,
    **changes: Any,
) -> Classifier:
    """Train a capsule network on your images; its `predict` says what other images are.

    ``images`` are one of

    - an array with ``labels``: uint8 or floats in [0, 1], ``[N, H, W]``, ``[N, C, H, W]`` or ``[N, H, W, C]``, of any
      size; labels are numbers or strings ``[N]``;
    - a map-style `torch.utils.data.Dataset` of ``(image, label)``: images of Pillow's, arrays or tensors, of any sizes;
      the classes have the names in its ``classes``, if it has any;
    - a folder with one subfolder per class, or ``train/`` and ``val/`` of those.

    ``validation`` are images of the same kinds, an array as a pair ``(images, labels)``, on which the error is watched
    and the best epoch is chosen. Without, a tenth of each class is held out; ``"none"`` trains on everything.
    (``"auto"``, ``"stratified"`` and ``"none"`` are the recipe's field; any other string is a folder.)

    A dataset or folder that would take more than 2 GB in memory is read anew in each epoch, by ``workers`` processes;
    ``stream=True`` always does so, ``stream=False`` never. The batches are the same either way.

    ``device`` is ``"cpu"``, ``"cuda"``, ``"mps"`` or what there is; ``precision`` is ``"32"``, ``"bf16"`` or ``"16"``.
    ``callbacks`` and ``loggers`` are Lightning's. ``changes`` are fields of the quick :class:`Recipe` that it follows:
    ``epochs=20``, ``size=64, model="poolcaps64"``, ``routing="em"``, ``patience=3``, ``class_weights="balanced"``.

    Ctrl-C ends training, not the program: the classifier has the best weights so far.

    >>> classifier = fit(images, labels, epochs=20)  # doctest: +SKIP
    >>> classifier.validation_error, classifier.history[-1].loss  # doctest: +SKIP
    >>> classifier.predict(new_images).names  # doctest: +SKIP
    >>> classifier.save("digits")  # doctest: +SKIP
    """
    require_lightning()
    is_folder = isinstance(images, str | Path)
    if meaningless := [name for name in changes if name in OF_STORED_SETS or (name == "skip_bad" and not is_folder)]:
        raise OptionError(
            f"{', '.join(meaningless)}: for data sets and folders, not for arrays; leave it out, or use torchcaps.train"
        )
    refuse_near_misses(changes)
    from torchcaps.train.loop import Resources

    resources = Resources(device=device, precision=precision)
    console = Console(quiet=not progress)
    own, beside = own_images(images, labels, skip_bad=bool(changes.get("skip_bad")))
    how, given = own_validation(validation)
    recipe = recipe_for(images, own, how, changes)
    recipe.refuse_without_effect(changes)
    size, side = recipe.images.size, folder_side(recipe.images)
    if "size" not in changes and own.side != size:
        say(console, f"images of {own.side} pixels (shorter side) become {size}x{size}; size=... changes this")
    streamed, readers = is_streamed(stream, own, side), number_of_workers(workers)
    if streamed:
        by = count(readers, "process", "processes")
        say(console, f"{len(own):,} images are read from disk in each epoch, by {by} (workers=...)")
    reading = Reading(side=side, streamed=streamed, workers=readers, seed=recipe.optimisation.seed)
    data = read(own, beside if given is None else given, reading, recipe.data)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        return _fit(recipe, data, resources, callbacks, loggers, console)


def refuse_near_misses(changes: dict[str, Any]) -> None:
    """Raise where a name is meant for an argument of `fit` itself; a recipe refuses the others."""
    own = [name for name, of in signature(fit).parameters.items() if of.kind is of.KEYWORD_ONLY]
    for name in changes:
        near = [] if name in PART_OF else get_close_matches(name, [*PART_OF, *own], n=1, cutoff=0.6)
        if near and near[0] in own:
            raise OptionError(f"fit has no argument {name}; did you mean {near[0]}?")


def recipe_for(images: Any, own: OwnImages, validation: Validation, changes: dict[str, Any]) -> Recipe:
    """The network that fits the images, or the size asked for; a folder's epochs are those of the command line."""
    side = size if isinstance(size := changes.get("size"), int) else own.side
    if isinstance(images, str | Path):
        start = folder_recipe(images, side=side).with_fields(data="folder")
    else:
        batch_size = min(25, max(2, len(own) // 4))
        start = for_own_images(side).with_fields(name="arrays", data="arrays", epochs=12, batch_size=batch_size)
    weights = "last" if validation == "none" or changes.get("average_epochs") else "best"
    return start.with_fields(**{"weights": weights, "validation": validation, **changes})


def _fit(
    recipe: Recipe,
    data: OwnData,
    resources: "Resources",
    callbacks: Sequence["Callback"],
    loggers: Sequence["Logger"],
    console: Console,
) -> Classifier:
    from torchcaps.train.checkpoints import Interrupted
    from torchcaps.train.loop import follow, keep_chosen

    torch.manual_seed(recipe.optimisation.seed)
    classifier = untrained(recipe, data)
    with tempfile.TemporaryDirectory(prefix="torchcaps-") as name:
        folder = Path(name)
        try:
            follow(
                recipe,
                classifier,
                data.train,
                data.validation,
                folder,
                resources=resources,
                console=console,
                callbacks=callbacks,
                loggers=loggers,
                advice=OUT_OF_SPACE,
            )
        except Interrupted as interrupted:
            if interrupted.exit_code != 128 + signal.SIGINT:
                raise SystemExit(interrupted.exit_code) from None
            keep_chosen(recipe, classifier, folder)
            kept = "with the lowest validation error so far" if (folder / BEST).is_file() else "of that step"
            say(Console(stderr=True), f"{interrupted}; the classifier has the weights {kept}")
        note_course(classifier, recipe, folder)
    return classifier


def untrained(recipe: Recipe, data: OwnData) -> Classifier:
    """The recipe's network, at its start."""
    if isinstance(data.train, Split):
        splits = Splits(data.classes, data.train, None, data.train)
        return make_classifier(recipe, splits, make_pipeline(recipe, splits))
    # An image without content shows the shape; all are read only where their statistics are needed.
    shape = Split(torch.zeros(1, *data.train.items.shape, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    splits = Splits(data.classes, shape, None, shape)
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    if recipe.images.standardise == "set":
        mean, deviation = statistics_of(part.images for part in data.train.parts())
    return make_classifier(recipe, splits, replace(make_pipeline(recipe, splits), mean=mean, deviation=deviation))


def note_course(classifier: Classifier, recipe: Recipe, folder: Path) -> None:
    """Put how training went on the classifier's card, which is saved with it."""
    rows = read_rows(folder / METRICS)
    ends = [row for row in rows if (row["epoch"] or 0.5).is_integer()]  # other rows are from within an epoch
    errors = [error for row in ends if (error := row["validation_error"]) is not None]
    settings = recipe.optimisation
    best = settings.weights == "best" and (folder / BEST).is_file()
    classifier.card["history"] = [
        {name: int(row["epoch"] or 0) if name == "epoch" else row[name] for name in Epoch._fields} for row in ends
    ]
    classifier.card["result"] = {
        "validation_error": errors[-1] if errors else None,
        "best_validation_error": min(errors, default=None),
        "weights": "mean" if settings.average_epochs else "best" if best else "last",
        "epochs": len(ends),  # fewer than planned where it stopped early
        "steps": int(rows[-1]["step"] or 0) if rows else 0,
    }


def say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)
