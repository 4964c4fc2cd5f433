"""From a recipe to its data and its network."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, arange, cat

from torchcaps.classifier.classifier import Classifier
from torchcaps.data import (
    ImageSet,
    Pipeline,
    Split,
    Splits,
    ViewpointSplits,
    list_sets,
    load,
    load_folder,
    make_splits,
    preset,
    viewpoint_splits,
)
from torchcaps.errors import OptionError
from torchcaps.train.fine_tuning import take_body
from torchcaps.train.recipe import DataSettings, ImageSettings, Recipe


def load_data(recipe: Recipe) -> Splits:
    """The recipe's training, validation and test images; with a viewpoint also `ViewpointSplits.familiar` ones."""
    return split_up(load_set(recipe), recipe.data)


def split_up(images: ImageSet, settings: DataSettings) -> Splits:
    """What is trained on, and what is held out."""
    held: dict[str, Any] = {"validation": settings.validation, "seed": settings.fold}
    if settings.viewpoint is None:
        splits = make_splits(images, **held)
    else:
        splits = viewpoint_splits(images, factor=settings.viewpoint, **held)
    if settings.camera == "each":
        splits = by_each_camera(splits)
    return splits if settings.images is None else with_fewer(splits, settings.images)


def by_each_camera(splits: Splits) -> Splits:
    """Of stereo pairs: all training images of the left camera, then all of the right; of the other splits the left's.

    Only now that pairs are split, so that no held-out object or pair is trained with by its other image.
    """

    def left(split: Split) -> Split:
        return replace(split, images=split.images[:, :1])

    pairs = splits.train  # images [N, 2, H, W]
    factors = {name: values.repeat(2) for name, values in pairs.factors.items()}
    train = Split(cat([pairs.images[:, :1], pairs.images[:, 1:]]), pairs.labels.repeat(2), factors)
    return replace(splits, train=train, **not_trained_on(splits, left))


def with_fewer(splits: Splits, most: int) -> Splits:
    """At most so many images of each split."""

    def fewer(split: Split) -> Split:
        return split.take(spread_indices(split.labels, most))

    note = f"{splits.note}; at most {most:,} images of each split"
    return replace(splits, train=fewer(splits.train), note=note, **not_trained_on(splits, fewer))


def not_trained_on(splits: Splits, change: Callable[[Split], Split]) -> dict[str, Any]:
    """All splits but the training one, changed, by their names."""
    found = {"validation": splits.validation, "test": splits.test}
    if isinstance(splits, ViewpointSplits):
        found["familiar"] = splits.familiar
    return {name: None if split is None else change(split) for name, split in found.items()}


def spread_indices(labels: Tensor, most: int) -> Tensor:
    """At most so many indices, ascending: of each class its share, and these spread evenly over its images ``[n]``.

    Not simply every n-th image: sets that are sorted, or whose classes take turns, would be left with few classes.
    """
    count = min(most, len(labels))
    by_class = labels.argsort(stable=True)  # [N]
    return by_class[arange(count) * len(labels) // max(1, count)].sort().values  # [n]


def load_set(recipe: Recipe) -> ImageSet:
    """The recipe's data set, or its folder of images."""
    settings = recipe.data
    if settings.data in list_sets():
        if settings.skip_bad:
            raise OptionError(f"skip_bad is for a folder of images, not for {settings.data}")
        camera = "both" if settings.camera == "each" else settings.camera
        return load(settings.data, root=settings.root, camera=camera, full=settings.full)
    if not Path(settings.data).expanduser().is_dir():
        raise OptionError(
            f"data is {settings.data!r}: expected one of {', '.join(list_sets())}, or a folder of images that exists; "
            "to resume a run, its image folder must be where it was"
        )
    if settings.root is not None or settings.full or settings.camera != "left":
        raise OptionError(f"root, full and camera are for data sets, not for the folder {settings.data}")
    return load_folder(settings.data, size=folder_side(recipe.images), skip_bad=settings.skip_bad)


def folder_side(images: ImageSettings) -> int:
    """Of a folder's images: an eighth larger than the network's input, a margin for random crops."""
    return images.resize or images.size * 9 // 8


def make_pipeline(recipe: Recipe, splits: Splits) -> Pipeline:
    """How the recipe's images become batches, with the training split's statistics."""
    changes = recipe.images.pipeline_fields()
    if recipe.data.data not in list_sets():
        changes.setdefault("resize", folder_side(recipe.images))
    try:
        return preset(recipe.data.data, size=recipe.images.size, **changes).with_statistics(splits.train)
    except ValueError as error:
        raise OptionError(f"invalid image settings: {error}") from error


def make_classifier(recipe: Recipe, splits: Splits, pipeline: Pipeline, *, begun: bool = False) -> Classifier:
    """The recipe's network, at its start; of a run that has ``begun``, a checkpoint will bring the pretrained body."""
    options: dict[str, Any] = {
        "num_classes": len(splits.classes),
        "in_channels": splits.train.images.shape[1],
        "image_size": recipe.images.size,
        **recipe.network.options(),
    }
    if recipe.network.has_capsules:
        options["decoder"] = recipe.has_decoder
    try:
        about = {"recipe": recipe.as_json()}
        classifier = Classifier(recipe.network.model, options, pipeline, splits.classes, about)
    except (TypeError, ValueError) as error:
        raise OptionError(f"invalid network settings: {error}") from error
    if recipe.network.pretrained is not None and not begun:
        take_body(recipe.network.pretrained, classifier)
    return classifier
