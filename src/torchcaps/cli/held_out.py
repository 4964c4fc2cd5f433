"""Networks, and the images that they are evaluated on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.evaluation import with_classes
from torchcaps.classifier.files import load
from torchcaps.classifier.image_files import CAMERAS
from torchcaps.data import DataError, ImageSet, Split, Splits, ViewpointSplits, list_sets, load_folder, make_splits
from torchcaps.data import load as load_set
from torchcaps.data.folder_layout import scan
from torchcaps.errors import OptionError
from torchcaps.runs.folder import RUN


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which networks on which images, as the user typed it."""

    runs: list[Path]
    crops: int = 1
    data: str | None = None
    root: Path | None = None
    split: Literal["test", "validation"] = "test"
    skip_bad: bool = False


@dataclass(frozen=True)
class Data:
    """The images of an evaluation."""

    name: str
    classes: tuple[str, ...]
    split: Split
    note: str = ""
    familiar: Split | None = None  # of a run on some viewpoints: the test images of those


def load_networks(choice: Choice) -> list[Classifier]:
    """The networks, which have to know the same classes."""
    classifiers = [load(run) for run in choice.runs]
    _check_same(choice.runs, "classes", [", ".join(classifier.classes) for classifier in classifiers])
    return classifiers


def load_images(choice: Choice, classifiers: list[Classifier]) -> Data:
    """The images, with the networks' numbers of the classes; raises where the runs do not have them in common."""
    found = _of_runs(choice, classifiers) if choice.data is None else _named(choice, classifiers)
    classes = classifiers[0].classes
    familiar = None if found.familiar is None else with_classes(found.familiar, found.classes, classes)
    return replace(found, classes=classes, split=with_classes(found.split, found.classes, classes), familiar=familiar)


def _of_runs(choice: Choice, classifiers: list[Classifier]) -> Data:
    from torchcaps.train.assemble import load_data
    from torchcaps.train.recipe import read_recipe, recipe_from_json

    for run in choice.runs:
        if run.expanduser().is_dir() and not (run.expanduser() / RUN).is_file():
            raise OptionError(f"{run} is a network without a run, which would say what its images are: add --data")
    recipes = [
        # A network that is no file here is one of the package, whose recipe is in its card.
        read_recipe(run if run.is_dir() else run.parent) if run.exists() else recipe_from_json(found.card["recipe"])
        for run, found in zip((run.expanduser() for run in choice.runs), classifiers, strict=True)
    ]
    # The seed is not here: it makes networks differ, not their data.
    same = ("data", "full", "camera", "viewpoint", "images") + (
        ("validation", "fold") if choice.split == "validation" else ()
    )
    for name in same:
        _check_same(choice.runs, name, [str(getattr(recipe.data, name)) for recipe in recipes])
    # A folder's images are decoded at the size of the largest network; the others take them smaller.
    recipe = max(recipes, key=lambda recipe: recipe.images.size)
    recipe = recipe if choice.root is None else recipe.with_fields(root=choice.root)
    data = recipe.data.data
    if choice.skip_bad:
        _check_folder(data)
        recipe = recipe.with_fields(skip_bad=True)
    if data not in list_sets() and not Path(data).is_dir():
        raise DataError(
            f"the images of {choice.runs[0]} were in {data}, which no longer exists: give the new folder with --data"
        )
    splits = load_data(recipe)
    familiar = splits.familiar if isinstance(splits, ViewpointSplits) else None
    return Data(data, splits.classes, _choose(choice, data, splits), splits.note, familiar)


def _named(choice: Choice, classifiers: list[Classifier]) -> Data:
    name = str(choice.data)
    channels = classifiers[0].network.in_channels
    if choice.skip_bad:
        _check_folder(name)
    if name in list_sets():
        images = load_set(name, root=choice.root, camera="both" if channels == CAMERAS else "left")
    elif choice.root is not None:
        raise DataError(f"--root is for data sets ({', '.join(list_sets())}), not for {name}: leave it out")
    elif not Path(name).expanduser().is_dir():
        raise DataError(f"--data {name}: expected one of {', '.join(list_sets())}, or a folder of images")
    elif channels == CAMERAS:
        raise DataError(
            f"--data {name}: the network takes stereo pairs, and a folder has single images; torchcaps predict takes "
            "pairs, as LEFT,RIGHT"
        )
    else:
        folder = Path(name).expanduser()
        size = max(classifier.source_size for classifier in classifiers)
        whole = choice.split == "test" and "test" not in scan(folder).splits
        options: dict[str, Any] = {"test_fraction": 0.0} if whole else {}
        options |= {"channels": 3 if channels == 3 else 1}
        images = load_folder(folder, size=size, skip_bad=choice.skip_bad, **options)
        if whole:
            return _whole_folder(images)
    return Data(images.name, images.classes, _choose(choice, name, make_splits(images)), images.note)


def _check_folder(data: str) -> None:
    if data in list_sets():
        raise DataError(f"--skip-bad is for folders of images, not for {data}: leave it out")


def _whole_folder(images: ImageSet) -> Data:
    """A folder without test/ stands for all of its images."""
    whole = "there is no test/, so these are all images of the folder, some of which may have been trained on"
    note = "; ".join(filter(None, [images.note, whole]))
    return Data(images.name, images.classes, images.train, note)


def _choose(choice: Choice, name: str, splits: Splits) -> Split:
    split = splits.test if choice.split == "test" else splits.validation
    if split is None or not len(split):
        raise DataError(f"{name} has no {choice.split} images in this run: evaluate on the other split")
    return split


def _check_same(runs: list[Path], what: str, values: list[str]) -> None:
    for run, value in zip(runs, values, strict=True):
        if value != values[0]:
            raise DataError(
                f"{runs[0]} and {run} differ in their {what}, {values[0]} and {value}: expected runs on the same data"
            )
