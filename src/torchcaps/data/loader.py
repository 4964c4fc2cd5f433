"""Batches of a split in memory, or of a stream: order and randomness are functions of (seed, epoch, batch)."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.mixing import Mix, MixedBatch, Mixing
from torchcaps.data.pipeline import Batch, Pipeline
from torchcaps.data.stream import Stream
from torchcaps.data.types import Split
from torchcaps.errors import OptionError


class BatchLoader:
    """Iterates over the batches of one epoch; the next iteration is the next epoch.

    ``batch_size`` is that of the whole run. Order and random numbers are those of the whole batch, of which each of the
    ``world_size`` processes makes its own part: the parts, put together, are the batch that one process would make.

    After `load_state_dict` the next iteration goes on in the middle of the epoch, with the batches that would have
    followed. A number of processes other than before is fine. Nothing happens before the first batch is asked for, so
    the state may be loaded, and the epoch set, after ``iter()``.
    """

    def __init__(
        self,
        split: Split | Stream,
        pipeline: Pipeline,
        *,
        batch_size: int,
        train: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool | None = None,
        crops: int = 1,
        mixing: Mixing | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Prepare the split (see `Pipeline.prepare`; a stream has its size already) and start at epoch 0.

        ``drop_last`` leaves the last, smaller batch out; the default is to do so in training. ``crops`` is for
        evaluation. With ``mixing`` batches are `MixedBatch`: each image is made of two of the batch. ``device`` is
        where batches are made; default: where the images are.
        """
        if batch_size < 1 or world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(
                f"batch_size {batch_size}, world_size {world_size}, rank {rank}: "
                "expected at least 1, at least 1, and 0 up to world_size - 1"
            )
        if train and crops != 1:
            raise ValueError(f"crops is {crops}: several crops are for evaluation, not for training")
        if mixing and not train:
            raise ValueError(f"mixing is {mixing}: images are mixed in training, not in evaluation")
        self.split = pipeline.prepare(split) if isinstance(split, Split) else split
        self.pipeline = pipeline
        self.batch_size = batch_size
        self.train = train
        self.seed = seed
        self.rank, self.world_size = rank, world_size
        self.drop_last = train if drop_last is None else drop_last
        self.crops = crops
        self.mixing = mixing or Mixing()
        self.device = None if device is None else torch.device(device)
        self.epoch = 0
        self._batch = 0  # the next to be made
        self._continue = False  # whether the next iteration goes on from there
        if train:
            self._check_training()

    def __len__(self) -> int:
        """Batches in an epoch; in evaluation, where a rank's part of the last batch may be empty, of this rank."""
        batches, rest = divmod(len(self.split), self.batch_size)
        if rest and not self.drop_last:
            start, stop = self._part(rest)
            batches += start < stop
        return batches

    def __iter__(self) -> Iterator[Batch | MixedBatch]:
        if not self._continue:
            self._batch = 0
        self._continue = False
        # Where this iteration is, is its own affair: the loader's fields follow, for the state.
        epoch, batches = self.epoch, len(self)
        order = self._order(epoch)  # [N]
        coming = range(self._batch, batches)
        needed = (self._needed(order, epoch, batch) for batch in coming)
        for batch, images in zip(coming, self._read(needed), strict=True):
            made = self._make(images, order, epoch, batch)
            # The state is that after the batch which the caller now gets. The last one ends the epoch here, because
            # callers that know the length (Lightning) do not ask for another.
            self.epoch, self._batch = (epoch, batch + 1) if batch + 1 < batches else (epoch + 1, 0)
            yield made

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; the current epoch is left where it is."""
        if epoch != self.epoch:
            self.epoch, self._batch, self._continue = epoch, 0, False

    def state_dict(self) -> dict[str, int]:
        """What continues after the last batch that was handed out."""
        return {"epoch": self.epoch, "batch": self._batch, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of a loader with the same images, batch size and seed."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(
                    f"the state is of a loader with {name} {state.get(name)}, this one has {value}: "
                    "the remaining batches would differ; use the data and settings of the interrupted run"
                )
        epoch, batch = state["epoch"], state["batch"]
        if epoch < 0 or not 0 <= batch < max(1, len(self)):
            raise ValueError(f"the state is at epoch {epoch}, batch {batch}; an epoch here has {len(self)} batches")
        self.epoch, self._batch, self._continue = epoch, batch, True

    def _identity(self) -> dict[str, int]:
        return {
            "samples": len(self.split),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "drop_last": int(self.drop_last),
        }

    def _order(self, epoch: int) -> Tensor:
        count = len(self.split)
        if not self.train:
            return torch.arange(count)
        return torch.randperm(count, generator=generator_for("order", self.seed, epoch))

    def _needed(self, order: Tensor, epoch: int, batch: int) -> Tensor:
        """The images that this rank needs for its part of a batch: an index ``[n]``."""
        whole, own = self._whole(order, batch)
        return whole[self._with_partners(own, len(whole), epoch, batch)[0] if self.mixing.in_epoch(epoch) else own]

    def _read(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        """The images of each index ``[n]``, one after the other."""
        if isinstance(self.split, Stream):
            yield from self.split.read(indices)
            return
        for index in indices:
            # index_select copies whole images; plain indexing goes pixel by pixel, and takes far longer.
            yield self.split.images.index_select(0, index.to(self.split.images.device))

    def _make(self, images: Tensor, order: Tensor, epoch: int, batch: int) -> Batch | MixedBatch:
        """A batch from the images that it needs ``[n, C, H, W]``."""
        whole, own = self._whole(order, batch)
        images = images if self.device is None else images.to(self.device)
        if not self.train:
            return self.pipeline.evaluate(images, self._labels(whole[own]), crops=self.crops)
        height, width = images.shape[2:]
        draws = self.pipeline.draw(len(whole), height, width, generator_for("batch", self.seed, epoch, batch))
        if not self.mixing.in_epoch(epoch):
            return self.pipeline.apply(images, self._labels(whole[own]), draws.take(own))
        places, first, second, mix = self._with_partners(own, len(whole), epoch, batch)
        made = self.pipeline.apply(images, self._labels(whole[places]), draws.take(places))
        first, second = first.to(made.image.device), second.to(made.image.device)
        image = mix.of(made.image.index_select(0, first), made.image.index_select(0, second))
        image = image.contiguous(memory_format=torch.channels_last)
        return MixedBatch(image, made.label[first], made.label[second], mix.share)

    def _whole(self, order: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """The images of a batch over all ranks ``[B]``, and the places in it that are this rank's."""
        whole = order[batch * self.batch_size : (batch + 1) * self.batch_size]
        return whole, torch.arange(*self._part(len(whole)))  # [B], [B / world_size]

    def _with_partners(self, own: Tensor, count: int, epoch: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Mix]:
        """This rank's places and those they are mixed with, which may be another rank's, made here again.

        The places ``[n]``; where in them each image and its partner are, ``[B / world_size]`` each; and the mix.
        """
        mix = self.mixing.draw(count, self.pipeline.crop, seed_for("mixup", self.seed, epoch, batch))
        places, found = torch.unique(torch.cat([own, mix.partner[own]]), return_inverse=True)
        first, second = found.chunk(2)
        return places, first, second, mix

    def _labels(self, index: Tensor) -> Tensor:
        """Of the images of an index ``[n]``, on the device where batches are made."""
        labels = self.split.labels.index_select(0, index.to(self.split.labels.device))
        return labels if self.device is None else labels.to(self.device)

    def _part(self, count: int) -> tuple[int, int]:
        """Where this rank's part of a batch of ``count`` begins and ends."""
        return count * self.rank // self.world_size, count * (self.rank + 1) // self.world_size

    def _check_training(self) -> None:
        if self.drop_last:
            check_batches(len(self.split), self.batch_size, self.world_size)
            return
        rest = len(self.split) % self.batch_size
        if self.batch_size % self.world_size or rest % self.world_size:
            raise ValueError(
                f"batches of {self.batch_size} and a last one of {rest} cannot be divided among {self.world_size} "
                "processes: use drop_last=True"
            )


def check_batches(images: int, batch_size: int, processes: int) -> None:
    """Raise unless images make a training batch, of which each process gets as many.

    Averaging the gradients of unequal parts would not give the gradient of the whole batch.
    """
    if batch_size > images:
        raise OptionError(
            f"batch_size is {batch_size}, but there are {images} training images: expected at most {images}"
        )
    if batch_size % processes:
        raise OptionError(f"batch_size is {batch_size}, for {processes} processes: expected a multiple of {processes}")


def generator_for(*key: str | int) -> torch.Generator:
    """A generator whose numbers depend on the key and on nothing else."""
    return torch.Generator().manual_seed(seed_for(*key))


def seed_for(*key: str | int) -> int:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
