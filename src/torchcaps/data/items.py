"""The items of a PyTorch dataset, or the files of a folder: one image after the other, as squares of one size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from torchcaps.data import transforms
from torchcaps.data.arrays import as_channels, as_images
from torchcaps.data.decode import as_pixels, read_image
from torchcaps.data.types import DataError, Split


@dataclass(frozen=True)
class DatasetItems:
    """The images of a dataset, as squares."""

    dataset: Any
    shape: tuple[int, int, int]

    def __getitem__(self, place: int) -> Tensor:
        return fitted(pixels_of(pair_of(self.dataset, place)[0], place), *self.shape[:2])


@dataclass(frozen=True)
class FileItems:
    """The images of files, as squares."""

    files: tuple[Path, ...]
    shape: tuple[int, int, int]

    def __getitem__(self, place: int) -> Tensor:
        return read_image(self.files[place], self.shape[1], self.shape[0])


def pair_of(dataset: Any, place: int) -> tuple[Any, Any]:
    """An item's image and label, the label as a plain number or string."""
    item = dataset[place]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"item {place} of the dataset is {type(item).__name__}, expected a pair (image, label)")
    image, label = item
    return image, label.item() if isinstance(label, Tensor | np.generic) else label


def pixels_of(image: Any, place: int) -> Tensor:
    """An item's image ``[C, H, W]`` uint8: one of Pillow's, or an array ``[H, W]``, ``[C, H, W]`` or ``[H, W, C]``."""
    if type(image).__module__.startswith("PIL."):
        return as_pixels(image)
    try:
        array = image if isinstance(image, Tensor) else np.asarray(image)
        if array.ndim not in (2, 3):
            raise DataError(f"it has shape {list(array.shape)}, expected [H, W], [C, H, W] or [H, W, C]")
        return as_images(array[None] if array.ndim == 3 else array)[0]
    except DataError as error:
        raise DataError(f"the image of item {place} of the dataset cannot be used: {error}") from error


def fitted(image: Tensor, channels: int, side: int) -> Tensor:
    """An image ``[C, H, W]`` with so many channels, its shorter side resized, its middle cut out: a square."""
    images = as_channels(image.unsqueeze(0), channels)
    resized = transforms.resize_split(Split(images, torch.zeros(1, dtype=torch.int64)), side).images
    return transforms.centre_crop(resized, side)[0].contiguous()


def known_labels(dataset: Any, looked_at: dict[int, Any]) -> list[Any] | None:
    """All labels without reading an image, where the dataset lists them, as torchvision's do in ``targets``.

    ``looked_at`` has the labels of some items: a list that says otherwise is of something else.
    """
    if isinstance(dataset, Subset):
        inside = known_labels(dataset.dataset, {dataset.indices[place]: label for place, label in looked_at.items()})
        return None if inside is None else [inside[place] for place in dataset.indices]
    values: Any = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if isinstance(dataset, TensorDataset):
        values = dataset.tensors[-1]
    if not isinstance(values, Sequence | np.ndarray | Tensor) or len(values) != len(dataset):
        return None
    labels = list(values) if isinstance(values, Sequence) else values.tolist()
    labels = [label.item() if isinstance(label, Tensor | np.generic) else label for label in labels]
    return labels if all(labels[place] == label for place, label in looked_at.items()) else None


def class_names(dataset: Any) -> tuple[str, ...] | None:
    """The names that a dataset gives to its classes."""
    if isinstance(dataset, Subset):
        return class_names(dataset.dataset)
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) > 1 else None
