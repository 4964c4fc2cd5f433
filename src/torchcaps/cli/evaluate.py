"""``torchcaps eval``: networks on the images that they were not trained on."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from tyro.conf import Positional

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.evaluation import Evaluation, ensemble, evaluate, evaluate_each, with_classes
from torchcaps.classifier.files import load
from torchcaps.cli.tables import class_table, confusion_table, run_table
from torchcaps.data import DataError, ImageSet, Split, Splits, ViewpointSplits, list_sets, load_folder, make_splits
from torchcaps.data import load as load_set
from torchcaps.data.folder_layout import scan
from torchcaps.data.splits import joined
from torchcaps.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EvaluateCall:
    """What the user typed."""

    runs: list[Path]
    crops: int = 1
    data: str | None = None
    root: Path | None = None
    split: Literal["test", "validation"] = "test"
    json: bool = False


@dataclass(frozen=True)
class Data:
    """The images of an evaluation."""

    name: str
    classes: tuple[str, ...]
    split: Split
    note: str = ""
    familiar: Split | None = None  # of a run on some viewpoints: the test images of those


@dataclass(frozen=True)
class Found:
    """The results."""

    each: list[Evaluation]
    together: Evaluation
    familiar: Evaluation | None = None  # of all networks together


def evaluate_command(
    runs: Positional[list[Path]],
    crops: Literal[1, 5, 9, 13] = 1,
    data: str | None = None,
    root: Path | None = None,
    split: Literal["test", "validation"] = "test",
    json: bool = False,
) -> None:
    """Evaluate a trained network: its error in total and by class, and its confusion matrix.

    Several runs are evaluated as an ensemble, by the mean of their activations.

    Args:
        runs: Folders of training runs, or names of pretrained networks.
        crops: Average over this many crops of each image.
        data: Another data set by name, or a folder of images with one subfolder per class; default: the run's own.
        root: The folder of the data set's files.
        split: The images to evaluate on.
        json: Print one JSON object and nothing else.
    """
    run_eval(EvaluateCall(runs=runs, crops=crops, data=data, root=root, split=split, json=json))


def run_eval(call: EvaluateCall) -> None:
    """Evaluate, and show or print the results."""
    if not call.runs:
        raise UserError("expected the folder of a training run, or the name of a pretrained network")
    classifiers = [load(run) for run in call.runs]
    _check_same(call.runs, "classes", [", ".join(classifier.classes) for classifier in classifiers])
    data = _data_of_runs(call, classifiers) if call.data is None else _named_data(call, classifiers)
    split = with_classes(data.split, data.classes, classifiers[0].classes)
    each = evaluate_each(classifiers, split, crops=call.crops)
    found = Found(each, ensemble(each))
    if data.familiar is not None and call.split == "test":
        familiar = with_classes(data.familiar, data.classes, classifiers[0].classes)
        found = replace(found, familiar=evaluate(classifiers, familiar, crops=call.crops))
    if call.json:
        print(json.dumps(as_json(call, data, found), indent=1))
    else:
        show(call, data, found)


def _data_of_runs(call: EvaluateCall, classifiers: list[Classifier]) -> Data:
    from torchcaps.train.assemble import load_data
    from torchcaps.train.recipe import read_recipe, recipe_from_json

    recipes = [
        # A network that is no file here is one of the package, whose recipe is in its card.
        read_recipe(run if run.is_dir() else run.parent) if run.exists() else recipe_from_json(found.card["recipe"])
        for run, found in zip((run.expanduser() for run in call.runs), classifiers, strict=True)
    ]
    # The seed is not here: it makes networks differ, not their data.
    same = ("data", "full", "camera", "viewpoint", "images") + (
        ("validation", "fold") if call.split == "validation" else ()
    )
    for name in same:
        _check_same(call.runs, name, [str(getattr(recipe.data, name)) for recipe in recipes])
    # A folder's images are decoded at the size of the largest network; the others take them smaller.
    recipe = max(recipes, key=lambda recipe: recipe.images.size)
    recipe = recipe if call.root is None else recipe.with_fields(root=call.root)
    data = recipe.data.data
    if data not in list_sets() and not Path(data).is_dir():
        raise DataError(
            f"the images of {call.runs[0]} were in {data}, which no longer exists: give the new folder with --data"
        )
    splits = load_data(recipe)
    familiar = splits.familiar if isinstance(splits, ViewpointSplits) else None
    return Data(data, splits.classes, _choose(call, data, splits), splits.note, familiar)


def _named_data(call: EvaluateCall, classifiers: list[Classifier]) -> Data:
    name = str(call.data)
    channels = classifiers[0].network.in_channels
    if name in list_sets():
        images = load_set(name, root=call.root, camera="both" if channels == 2 else "left")
    elif call.root is not None:
        raise DataError(f"--root is for data sets ({', '.join(list_sets())}), not for {name}: leave it out")
    elif not Path(name).expanduser().is_dir():
        raise DataError(f"--data {name}: expected one of {', '.join(list_sets())}, or a folder of images")
    else:
        folder = Path(name).expanduser()
        size = max(classifier.source_size for classifier in classifiers)
        images = load_folder(folder, size=size, channels=3 if channels == 3 else 1)
        if call.split == "test" and "test" not in scan(folder).splits:
            return _whole_folder(images)
    return Data(images.name, images.classes, _choose(call, name, make_splits(images)), images.note)


def _whole_folder(images: ImageSet) -> Data:
    """A folder without test/ stands for all of its images."""
    note = "there is no test/, so these are all images of the folder, some of which may have been trained on"
    return Data(images.name, images.classes, joined(images.train, images.test), note)


def _choose(call: EvaluateCall, name: str, splits: Splits) -> Split:
    split = splits.test if call.split == "test" else splits.validation
    if split is None or not len(split):
        raise DataError(f"{name} has no {call.split} images in this run: evaluate on the other split")
    return split


def _check_same(runs: list[Path], what: str, values: list[str]) -> None:
    for run, value in zip(runs, values, strict=True):
        if value != values[0]:
            raise DataError(
                f"{runs[0]} and {run} differ in their {what}, {values[0]} and {value}: "
                "expected runs on the same data; evaluate them one by one"
            )


def as_json(call: EvaluateCall, data: Data, found: Found) -> dict[str, Any]:
    """All numbers; errors are fractions, null for a class without images, and without familiar viewpoints."""
    together = found.together
    return {
        "error": together.error,
        "familiar_error": None if found.familiar is None else found.familiar.error,
        "wrong": together.wrong,
        "images": len(together.label),
        "data": data.name,
        "split": call.split,
        "crops": call.crops,
        "runs": [{"run": str(run), "error": one.error} for run, one in zip(call.runs, found.each, strict=True)],
        "classes": [
            {"name": name, "images": images, "wrong": wrong, "error": wrong / images if images else None}
            for name, images, wrong in together.by_class()
        ],
        "confusion": together.confusion.tolist(),
    }


def show(call: EvaluateCall, data: Data, found: Found) -> None:
    """Tables, and the error as the last line."""
    each, together = found.each, found.together
    console = Console(highlight=False, markup=False)
    note = f" ({data.note})" if data.note else ""
    console.print(f"{data.name}, {call.split}: {len(together.label):,} images{note}")
    console.print(class_table(console, together))
    console.print(confusion_table(console, together))
    if len(each) > 1:
        console.print(run_table(console, call.runs, each, together))
    if found.familiar is not None:
        print(f"error on familiar viewpoints: {100 * found.familiar.error:.2f} %")
    print(f"error: {100 * together.error:.2f} %")
