"""A user's own images: arrays, a PyTorch dataset, or a folder; as a split in memory, or as a stream."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchcaps.data.arrays import as_channels, as_labels
from torchcaps.data.decode import import_pillow, read_image
from torchcaps.data.folder import load_folder
from torchcaps.data.folder_layout import Layout, scan
from torchcaps.data.items import DatasetItems, FileItems, class_names, fitted, known_labels, pair_of, pixels_of
from torchcaps.data.stream import Items, Stream
from torchcaps.data.types import DataError, Split

SAMPLE = 20  # images that are looked at to learn the size and the channels of a set

Found = tuple[Split | Stream, tuple[str, ...]]  # images, and the names of the classes that their labels count


class OwnImages(Protocol):
    """Images and labels, before it is known at which size they are needed."""

    @property
    def side(self) -> int:
        """Shorter side of most images."""

    @property
    def most_channels(self) -> int: ...

    def __len__(self) -> int: ...

    def load(self, side: int, channels: int | None) -> Found:
        """All images in memory: squares of ``side``, but arrays as they are. ``channels``: None for their own."""

    def stream(self, side: int, channels: int | None, workers: int, seed: int) -> Found:
        """The same images, to be read when they are needed."""


@dataclass(frozen=True)
class Arrays:
    """In memory already."""

    images: Tensor  # [N, C, H, W] uint8
    labels: Tensor | npt.ArrayLike  # [N]
    least_classes: int = 2

    @property
    def side(self) -> int:
        return min(self.images.shape[2:])

    @property
    def most_channels(self) -> int:
        return self.images.shape[1]

    def __len__(self) -> int:
        return len(self.images)

    def load(self, side: int, channels: int | None) -> Found:
        labels, classes = as_labels(self.labels, len(self), least=self.least_classes)
        return Split(as_channels(self.images, channels or self.most_channels), labels), classes

    def stream(self, side: int, channels: int | None, workers: int, seed: int) -> Found:
        raise DataError("arrays are in memory, there is nothing to stream: leave stream=True out, or give a Dataset")


class FromDataset:
    """A map-style dataset of ``(image, label)``, such as those of torchvision."""

    def __init__(self, dataset: Any, *, least_classes: int = 2) -> None:
        """Look at some of its items."""
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            hint = "; of a DataLoader, give its .dataset" if hasattr(dataset, "dataset") else ""
            raise DataError(
                f"images are {type(dataset).__name__}, expected arrays with labels, a folder, or a dataset that has a "
                f"length and items (image, label){hint}"
            )
        if not len(dataset):
            raise DataError("the dataset is empty: expected at least one (image, label)")
        self.dataset, self.least_classes = dataset, least_classes
        places = spread(len(dataset))
        pairs = [pair_of(dataset, place) for place in places]
        images = [pixels_of(image, place) for place, (image, _) in zip(places, pairs, strict=True)]
        self.side = median([min(image.shape[1:]) for image in images])
        self.most_channels = max(image.shape[0] for image in images)
        self.labels = known_labels(dataset, {place: label for place, (_, label) in zip(places, pairs, strict=True)})

    def __len__(self) -> int:
        return len(self.dataset)

    def load(self, side: int, channels: int | None) -> Found:
        images = torch.empty(len(self), channels or self.most_channels, side, side, dtype=torch.uint8)
        found = []
        for place in range(len(self)):
            image, label = pair_of(self.dataset, place)
            images[place] = fitted(pixels_of(image, place), images.shape[1], side)
            found.append(label)
        labels, classes = self._classes(found)
        return Split(images, labels), classes

    def stream(self, side: int, channels: int | None, workers: int, seed: int) -> Found:
        if self.labels is None:  # only the items know
            self.labels = [pair_of(self.dataset, place)[1] for place in range(len(self))]
        labels, classes = self._classes(self.labels)
        items = DatasetItems(self.dataset, (channels or self.most_channels, side, side))
        return as_stream(items, labels, workers, seed), classes

    def _classes(self, labels: list[Any]) -> tuple[Tensor, tuple[str, ...]]:
        """Labels as class indices; the dataset's own names of its classes, where it has any."""
        names = class_names(self.dataset)
        if names is None or not all(isinstance(label, int) for label in labels):
            return as_labels(np.asarray(labels), len(labels), least=self.least_classes)
        if not all(0 <= label < len(names) for label in labels):
            raise DataError(
                f"labels are from {min(labels)} to {max(labels)}, expected 0 to {len(names) - 1}: the dataset has "
                f"{len(names)} classes"
            )
        return torch.tensor(labels, dtype=torch.int64), names


@dataclass(frozen=True)
class Folder:
    """One subfolder per class, or ``train/`` (and ``val/``, ``test/``) of those; ``test/`` is left alone."""

    root: Path
    layout: Layout
    part: Literal["train", "validation"] = "train"
    skip_bad: bool = False
    most_channels: int = 3

    @property
    def places(self) -> list[int]:
        """Of the part's files in the layout."""
        return [place for place, split in enumerate(self.layout.splits) if split == self.part]

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self.layout.files[place] for place in self.places)

    @property
    def side(self) -> int:
        return typical_side(self.files)

    def __len__(self) -> int:
        return len(self.places)

    def load(self, side: int, channels: int | None) -> Found:
        wanted: Any = channels or "auto"
        found = load_folder(self.root, size=side, channels=wanted, skip_bad=self.skip_bad, test_fraction=0)
        images = found.train if self.part == "train" else found.validation
        assert images is not None
        return images, found.classes

    def stream(self, side: int, channels: int | None, workers: int, seed: int) -> Found:
        if self.skip_bad:
            raise DataError("a stream cannot skip files that are no images: remove them, and leave skip_bad out")
        if channels is None:
            looked_at = [read_image(self.files[place], side, 3) for place in spread(len(self))]
            channels = 1 if all(bool((image == image[:1]).all()) for image in looked_at) else 3
        labels = torch.tensor([self.layout.labels[place] for place in self.places], dtype=torch.int64)
        return as_stream(FileItems(self.files, (channels, side, side)), labels, workers, seed), self.layout.classes


def folder_parts(path: str | Path, *, skip_bad: bool = False) -> tuple[Folder, Folder | None]:
    """A folder's training images, and its own validation images where it has ``val/``."""
    root = Path(path).expanduser()
    layout = scan(root)
    own = Folder(root, layout, "validation", skip_bad) if "validation" in layout.splits else None
    return Folder(root, layout, "train", skip_bad), own


def as_stream(items: Items, labels: Tensor, workers: int, seed: int) -> Stream:
    return Stream(items, labels, torch.arange(len(labels)), workers, torch.Generator().manual_seed(seed))


def typical_side(files: Sequence[Path]) -> int:
    """The median of the shorter sides of some image files, by their headers; 0 where none can be read."""
    sides = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in files[:: max(1, len(files) // 50)]:
            with suppress(Exception), import_pillow().open(file) as image:  # loading says what is wrong
                sides.append(min(image.size))
    return median(sides) if sides else 0


def median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def spread(count: int) -> list[int]:
    """Some places of so many, evenly spaced."""
    return [place * count // min(SAMPLE, count) for place in range(min(SAMPLE, count))]
