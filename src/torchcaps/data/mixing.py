"""Training images made of two: mixup and CutMix."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PLAIN = 1.0  # the share of an image with nothing mixed in


class MixedBatch(NamedTuple):
    """Images that are each made of two: ``share`` of the first, the rest of the second."""

    image: Tensor  # [B, C, S, S] float32
    label: Tensor  # [B] int64, of the first ones
    other_label: Tensor  # [B] int64, of the second ones
    share: float


class Mix(NamedTuple):
    """How the images of a batch are mixed: all alike, as losses are means over it."""

    partner: Tensor  # [B] int64
    share: float  # of the image itself, the rest is its partner's
    patch: tuple[slice, slice] | None  # rows and columns that are the partner's; none: a weighted mean everywhere

    def of(self, image: Tensor, other: Tensor) -> Tensor:
        """``[B, C, S, S]`` from images and their partners. Each result depends on its own two, bit for bit."""
        if self.patch is not None:
            mixed = image.clone()
            mixed[:, :, *self.patch] = other[:, :, *self.patch]
            return mixed
        return image if self.share == PLAIN else image * self.share + other * (1 - self.share)


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Which batches are mixed, and how."""

    mixup: float = 0.0
    """Blend with a weight from Beta(a, a), where a is this (Zhang et al. 2018); 0: off."""
    cutmix: float = 0.0
    """Share of the batches in which a square of each image is another's (Yun et al. 2019), rather than mixup."""
    epochs: int | None = None
    """Mix in the first so many epochs only; None: in all."""

    def __post_init__(self) -> None:
        if not 0 <= self.mixup < math.inf:
            raise ValueError(f"mixup is {self.mixup}, expected a number of 0 or more")
        if not 0 <= self.cutmix <= 1:
            raise ValueError(f"cutmix is {self.cutmix}, expected a share of the batches, 0 to 1")

    def __bool__(self) -> bool:
        return bool(self.mixup or self.cutmix)

    def in_epoch(self, epoch: int) -> bool:
        """Whether images are mixed in an epoch; the first is 0."""
        return bool(self) and (self.epochs is None or epoch < self.epochs)

    def draw(self, count: int, side: int, seed: int) -> Mix:
        """How ``count`` images of ``side`` x ``side`` pixels are mixed."""
        random = np.random.default_rng(seed)
        patch = None
        if self.cutmix and random.random() < self.cutmix:
            patch, share = draw_patch(side, random)
        else:
            share = random.beta(self.mixup, self.mixup) if self.mixup else PLAIN
        return Mix(torch.from_numpy(random.permutation(count)), share, patch)


def draw_patch(side: int, random: np.random.Generator) -> tuple[tuple[slice, slice], float]:
    """A square about any pixel, of any area up to the whole, cut off at the edges; and the share of pixels outside."""
    width = int(side * math.sqrt(random.random()))
    rows, columns = (
        slice(max(0, middle - width // 2), min(side, middle - width // 2 + width))
        for middle in random.integers(side, size=2).tolist()
    )
    inside = (rows.stop - rows.start) * (columns.stop - columns.start)
    return (rows, columns), 1 - inside / side**2
