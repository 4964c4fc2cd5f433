"""The one face of every data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.errors import UserError


class DataError(UserError):
    """A file, folder or download that cannot be used: which one, what is wrong with it, and what to do."""


@dataclass(frozen=True)
class Split:
    """Images with their labels; large ones lie memory-mapped in their file."""

    images: Tensor  # [N, C, H, W], uint8
    labels: Tensor  # [N], int64
    factors: Mapping[str, Tensor] = field(default_factory=dict)  # [N] int64 each, -1 where not known
    files: tuple[Path, ...] = ()  # one per image, where each has a file of its own; else none

    def __post_init__(self) -> None:
        count = len(self.images)
        if self.images.dim() != 4 or self.images.dtype != torch.uint8:
            raise ValueError(f"images are {self.images.dtype} {list(self.images.shape)}, expected uint8 [N, C, H, W]")
        for name, values in {"labels": self.labels, **self.factors}.items():
            if values.shape != (count,) or values.dtype != torch.int64:
                raise ValueError(f"{name} are {values.dtype} {list(values.shape)}, expected int64 [{count}]")
        if len(self.files) not in (0, count):
            raise ValueError(f"{len(self.files)} files for {count} images, expected one per image, or none")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: Tensor) -> "Split":
        """The samples of an index ``[n]``, in its order."""
        factors = {name: values[index] for name, values in self.factors.items()}
        files = tuple(self.files[place] for place in index.tolist()) if self.files else ()
        return Split(self.images[index], self.labels[index], factors, files)

    def factor(self, name: str) -> Tensor:
        """A factor of variation ``[N]``; raises where the set does not have it, or does not know it for every image."""
        if name not in self.factors:
            known = f"it has {', '.join(self.factors)}" if self.factors else "it has no factors at all"
            raise DataError(f"this set has no factor {name!r}: {known}")
        values = self.factors[name]
        unknown = int((values < 0).sum())
        if unknown:
            raise DataError(
                f"the {name} of {unknown} of {len(values)} images is not known: "
                "it comes from the set's info file, which is missing here or holds -1"
            )
        return values


@dataclass(frozen=True)
class ImageSet:
    """A data set as it was published: the images to learn from, and those to evaluate on."""

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    folder: Path | None = None  # where its files were found
    validation: Split | None = None  # its own, where it brings one, as an image folder with val/ does
    note: str = ""  # how its parts were made, for the log


@dataclass(frozen=True)
class Splits:
    """What a run uses. The test split is only ever evaluated."""

    classes: tuple[str, ...]
    train: Split
    validation: Split | None
    test: Split
    note: str = ""  # how the validation split was made, for the log
