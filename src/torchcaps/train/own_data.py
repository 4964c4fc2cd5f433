"""What `torchcaps.fit` is given, as training and validation images: in memory, or read when they are needed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.data import ImageSet, Split
from torchcaps.data.arrays import as_images
from torchcaps.data.own import Arrays, Found, FromDataset, OwnImages, folder_parts
from torchcaps.data.splits import Validation, joined
from torchcaps.data.stream import Stream
from torchcaps.data.types import DataError
from torchcaps.errors import OptionError
from torchcaps.runs.machine import usable_cores
from torchcaps.train.assemble import split_up
from torchcaps.train.recipe import DataSettings

STREAMED_ABOVE = 2 * 10**9  # bytes of decoded images
MOST_WORKERS = 4  # by default


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """What is trained on, and what is held out."""

    classes: tuple[str, ...]
    train: Split | Stream
    validation: Split | Stream | None


def own_images(images: Any, labels: Any, *, skip_bad: bool = False) -> tuple[OwnImages, OwnImages | None]:
    """What was given to train on; and a folder's own validation images."""
    if isinstance(images, str | Path | Dataset) and labels is not None:
        raise OptionError(f"labels are for arrays: a {type(images).__name__} brings its own, leave them out")
    if isinstance(images, str | Path):
        return folder_parts(images, skip_bad=skip_bad)
    if isinstance(images, np.ndarray | Tensor) and labels is None:
        raise OptionError("labels are missing: expected fit(images, labels), with one label for each image")
    return (FromDataset(images) if labels is None else Arrays(as_images(images), labels)), None


def own_validation(given: Any) -> tuple[Validation, OwnImages | None]:
    """The recipe's field, and the images that were given instead of a name."""
    names = tuple(name for name in get_args(Validation) if name != "instance")  # which no own images know
    if isinstance(given, str) and given in names:
        found: Validation = given  # type: ignore[assignment]  # one of them
        return found, None
    if isinstance(given, str | Path):
        if not Path(given).expanduser().is_dir():
            raise OptionError(
                f"validation is {str(given)!r}, expected {', '.join(names)}, a folder that exists, "
                "(images, labels), or a Dataset"
            )
        return "auto", folder_parts(given)[0]
    if isinstance(given, tuple):
        if len(given) != 2:
            raise OptionError(f"validation is a tuple of {len(given)}, expected (images, labels)")
        return "auto", Arrays(as_images(given[0]), given[1], least_classes=1)
    if isinstance(given, int | float):
        raise OptionError(
            f"validation is {given}, expected {', '.join(names)}, a folder, (images, labels), or a Dataset; "
            "'stratified' holds out a tenth of each class"
        )
    return "auto", FromDataset(given, least_classes=1)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Whether images are kept in memory, and who reads them otherwise."""

    side: int  # at which they are needed
    streamed: bool
    workers: int
    seed: int

    def of(self, images: OwnImages, channels: int | None = None) -> Found:
        if self.streamed and not isinstance(images, Arrays):
            return images.stream(self.side, channels, self.workers, self.seed)
        return images.load(self.side, channels)


def is_streamed(asked: Any, images: OwnImages, side: int) -> bool:
    """As asked for, or where the images take much memory."""
    if asked not in (True, False, "auto"):
        raise OptionError(f"stream is {asked!r}, expected True, False or 'auto'")
    if isinstance(images, Arrays):
        if asked is True:
            raise OptionError("stream=True is for a Dataset or a folder: arrays are in memory, leave it out")
        return False
    return len(images) * images.most_channels * side**2 > STREAMED_ABOVE if asked == "auto" else bool(asked)


def number_of_workers(asked: int | None) -> int:
    """Processes that read a stream."""
    if asked is None:
        return min(MOST_WORKERS, usable_cores())
    if not isinstance(asked, int) or asked < 0:
        raise OptionError(f"workers is {asked!r}, expected a whole number of 0 or more")
    return asked


def read(images: OwnImages, held: OwnImages | None, reading: Reading, settings: DataSettings) -> OwnData:
    """The images, and what a recipe holds out of them or finds held out."""
    train, classes = reading.of(images)
    own = None if held is None else with_labels_of(classes, *reading.of(held, channels_of(train)))
    # Who is held out depends on the labels alone: images without pixels, which know their places, are split up.
    places = ImageSet("own", classes, numbered(train.labels), numbered(train.labels[:0]))
    if own is not None:
        places = replace(places, validation=numbered(own.labels, len(train)))
    splits = split_up(places, settings)
    kept = None if splits.validation is None else chosen(train, own, splits.validation.factors["place"])
    return OwnData(classes=classes, train=chosen(train, own, splits.train.factors["place"]), validation=kept)


def numbered(labels: Tensor, first: int = 0) -> Split:
    """Images without pixels, whose places are counted from ``first`` on."""
    nothing = torch.empty(len(labels), 1, 0, 0, dtype=torch.uint8)
    return Split(nothing, labels, {"place": torch.arange(first, first + len(labels))})


def chosen(train: Split | Stream, own: Split | Stream | None, places: Tensor) -> Split | Stream:
    """The images at some places, counted through both sets."""
    count = len(train)
    if len(places) == count and bool((places == torch.arange(count)).all()):
        return train  # not copied
    first, second = places[places < count], places[places >= count] - count
    if own is None or not len(second):
        return train.take(first)
    if not len(first):
        return own.take(second)
    if isinstance(train, Split) and isinstance(own, Split):
        return joined(train.take(first), own.take(second))
    raise OptionError("a stream is not joined with its validation images: leave validation='none' or 'stratified' out")


def channels_of(images: Split | Stream) -> int:
    return images.images.shape[1] if isinstance(images, Split) else images.items.shape[0]


def with_labels_of(classes: tuple[str, ...], images: Split | Stream, names: tuple[str, ...]) -> Split | Stream:
    """Images whose labels count other names, or the same in another order.

    Where classes have other names than numbers, numbers are their places, from 0.
    """
    numbered = any(name.isdecimal() for name in classes)
    if not numbered and set(names) <= {str(place) for place in range(len(classes))}:
        names = tuple(classes[int(name)] for name in names)
    unknown = sorted({names[label] for label in images.labels.tolist()} - set(classes))
    if unknown:
        raise DataError(
            f"validation images are of the class {', '.join(unknown)}, which no training image has: "
            f"expected {', '.join(classes)}"
        )
    place = torch.tensor([classes.index(name) if name in classes else -1 for name in names])  # [names]
    return replace(images, labels=place[images.labels])
