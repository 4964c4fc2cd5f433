"""Images that stay where they are until a batch needs them: sets larger than memory."""

import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcaps.data.types import DataError, Split

AT_ONCE = 200  # images in memory where all are gone through


class Items(Protocol):
    """Images by their number, all of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """C, H, W."""

    def __getitem__(self, place: int) -> Tensor:
        """``[C, H, W]`` uint8."""


@dataclass(frozen=True)
class Stream:
    """What `Split` is, of which only the labels are in memory; worker processes read the images."""

    items: Items
    labels: Tensor  # [N], int64
    places: Tensor  # [N], int64: which items
    workers: int  # processes; 0: this one reads
    generator: torch.Generator  # of the workers' seeds, for datasets that change images at random

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> "Stream":
        """The samples of an index ``[n]``, in its order; nothing is read."""
        return replace(self, labels=self.labels[index], places=self.places[index])

    def read(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        """The images ``[n, C, H, W]`` of each index ``[n]``; workers read a few indices ahead."""
        loader: DataLoader[Any] = DataLoader(
            OrError(self.items),
            batch_sampler=(self.places[index].tolist() for index in indices),
            collate_fn=stacked,
            num_workers=self.workers,
            worker_init_fn=leave_interrupts_to_the_parent,
            generator=self.generator,
        )
        for images in loader:
            if isinstance(images, DataError):
                raise images
            yield images

    def parts(self, size: int = AT_ONCE) -> Iterator[Split]:
        """All of it, so many images at a time."""
        pieces = torch.split(torch.arange(len(self)), size)
        for index, images in zip(pieces, self.read(pieces), strict=True):
            yield Split(images, self.labels[index])


class OrError(Dataset[Tensor | DataError]):
    """Items whose errors are values: what a worker raises arrives with its traceback for a message."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def __getitem__(self, place: int) -> Tensor | DataError:
        try:
            return self.items[place]
        except DataError as error:
            return error


def stacked(images: list[Tensor | DataError]) -> Tensor | DataError:
    """The images as one tensor, or the first error among them."""
    error = next((image for image in images if isinstance(image, DataError)), None)
    return error or torch.stack([image for image in images if isinstance(image, Tensor)])


def leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches all processes; the parent finishes its step, for which it needs the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
