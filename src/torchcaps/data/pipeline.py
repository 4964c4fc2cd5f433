"""From uint8 images to the input of a network and its decoder."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data import transforms
from torchcaps.data.specs import spec_of
from torchcaps.data.types import Split

Standardise = Literal["image", "channel", "set", "none"]

TARGET_SIZE = 32  # the decoder's images

MARGIN_OF_13 = 16  # with less, a sixteenth of it is less than a pixel
DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))
# Where the crops of an evaluation lie, as (down, right) from 0 to 1. The centre comes first. The 13 are those of Hinton
# et al.'s code: the centre moved by 1, 2 and 3 pixels along both diagonals, of the 16 that 32x32 crops have in 48x48.
CROPS = {
    1: ((0.5, 0.5),),
    5: ((0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)),
    9: ((0.5, 0.5), *((d, r) for d in (0.0, 0.5, 1.0) for r in (0.0, 0.5, 1.0) if (d, r) != (0.5, 0.5))),
    13: ((0.5, 0.5), *((0.5 + d * step / 16, 0.5 + r * step / 16) for step in (1, 2, 3) for d, r in DIAGONALS)),
}


class Batch(NamedTuple):
    image: Tensor  # [B, C, S, S] float32, the network's input; [B * crops, ...] where several crops are evaluated
    label: Tensor  # [B] int64
    target: Tensor  # [B, C, 32, 32] float32 in [0, 1], the clean crop, for reconstruction


class Draws(NamedTuple):
    """The random numbers of a batch, one of each for every sample."""

    top: Tensor  # [B] int64
    left: Tensor  # [B] int64
    brightness: Tensor  # [B] float32
    contrast: Tensor  # [B] float32
    mirrored: Tensor  # [B] bool
    warp: Tensor  # [B, 2, 2] float32

    def take(self, index: Tensor) -> "Draws":
        return Draws(*(values[index] for values in self))

    def to(self, device: torch.device) -> "Draws":
        return Draws(*(values.to(device) for values in self))


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How images become batches. Training deforms, shifts, crops, flips and jitters at random; evaluation does not."""

    crop: int
    """Side of the network's input."""
    resize: int | None = None
    """Shorter side of the images before cropping; the whole split is resized once, by `prepare`."""
    brightness: float = 0.0
    """Jitter adds up to this much, either way, to pixels in [0, 1]."""
    contrast: float = 0.0
    """Jitter scales the distance to the image's mean by 1 minus to 1 plus this."""
    shift: int = 0
    """Shift by up to this many pixels either way, black coming in."""
    stretch: float = 0.0
    """Scale width and height, each by a factor of its own, by up to e to this, either way; and shear by up to this."""
    turn: float = 0.0
    """Turn by up to this many degrees, either way."""
    flip: bool = False
    """Mirror half of the images, left to right; the cameras of a stereo pair change places."""
    standardise: Standardise = "image"
    """What gets zero mean and unit standard deviation: each image, each channel, the training set, or nothing."""
    mean: tuple[float, ...] = ()
    """Of the training set, by channel; `with_statistics` fills it in."""
    deviation: tuple[float, ...] = ()
    """Of the training set, by channel; `with_statistics` fills it in."""

    def __post_init__(self) -> None:
        for name in ("crop", "shift", *(() if self.resize is None else ("resize",))):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} is {value!r}, expected a whole number")
        single = {name: (getattr(self, name),) for name in ("brightness", "contrast", "stretch", "turn")}
        for name, numbers in {**single, "mean": self.mean, "deviation": self.deviation}.items():
            for number in numbers:
                if not isinstance(number, int | float) or not math.isfinite(number):
                    raise ValueError(f"{name} is {number!r}, expected a finite number")
        if not isinstance(self.flip, bool):
            raise ValueError(f"flip is {self.flip!r}, expected True or False")
        if self.crop < 1:
            raise ValueError(f"crop is {self.crop}, expected at least 1")
        if self.resize is not None and self.resize < self.crop:
            raise ValueError(f"resize is {self.resize}, too small for a crop of {self.crop}")
        if self.brightness < 0 or not 0 <= self.contrast <= 1 or self.shift < 0:
            raise ValueError(
                f"brightness {self.brightness}, contrast {self.contrast}, shift {self.shift}: "
                "expected none below 0, and contrast up to 1"
            )
        if not 0 <= self.stretch <= 1 or not 0 <= self.turn <= 180:
            raise ValueError(f"stretch {self.stretch}, turn {self.turn}: expected 0 to 1, and 0 to 180 degrees")
        if self.standardise not in get_args(Standardise):
            raise ValueError(f"standardise is {self.standardise!r}, expected one of {', '.join(get_args(Standardise))}")
        if len(self.mean) != len(self.deviation):
            raise ValueError(f"mean of {len(self.mean)} channels, standard deviation of {len(self.deviation)}")
        if any(deviation <= 0 for deviation in self.deviation):
            raise ValueError(f"standard deviation is {list(self.deviation)}, expected numbers above 0")

    def prepare(self, split: Split) -> Split:
        """The split at the size from which crops are taken; done once, and again without effect."""
        return split if self.resize is None else transforms.resize_split(split, self.resize)

    def with_statistics(self, train: Split) -> "Pipeline":
        """This pipeline with the mean and standard deviation of the training split filled in."""
        mean, deviation = transforms.channel_statistics(self.prepare(train))
        return replace(self, mean=mean, deviation=deviation)

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> Draws:
        """Random numbers for ``count`` images of one size; drawn on the CPU, so that every device sees the same."""
        room = 2 * self.shift - self.crop + 1
        uniform = torch.rand(5, count, generator=generator)  # always all five: switching one off leaves the others
        return Draws(
            top=(uniform[0] * (height + room)).long().clamp_(max=height + room - 1),  # [B]
            left=(uniform[1] * (width + room)).long().clamp_(max=width + room - 1),
            brightness=(2 * uniform[2] - 1) * self.brightness,
            contrast=1 + (2 * uniform[3] - 1) * self.contrast,
            mirrored=uniform[4] < 0.5 if self.flip else torch.zeros(count, dtype=torch.bool),
            warp=self._draw_warp(count, generator) if self.deforms else torch.eye(2).expand(count, 2, 2),
        )

    @property
    def deforms(self) -> bool:
        return self.stretch > 0 or self.turn > 0

    def _draw_warp(self, count: int, generator: torch.Generator) -> Tensor:
        """Turned, then stretched, then sheared: ``[B, 2, 2]``."""
        wide, high, shear, angle = 2 * torch.rand(4, count, generator=generator) - 1  # [B] each
        wide, high, shear = (wide * self.stretch).exp(), (high * self.stretch).exp(), shear * self.stretch
        cos, sin = (angle * math.radians(self.turn)).cos(), (angle * math.radians(self.turn)).sin()
        rows = [cos * wide, cos * wide * shear - sin * high, sin * wide, sin * wide * shear + cos * high]
        return torch.stack(rows, 1).view(count, 2, 2)

    def train(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Batch:
        """A training batch of prepared images ``[B, C, H, W]`` uint8."""
        self._check(images)
        return self.apply(images, labels, self.draw(len(images), images.shape[2], images.shape[3], generator))

    def apply(self, images: Tensor, labels: Tensor, draws: Draws) -> Batch:
        """A training batch with random numbers drawn before."""
        self._check(images)
        draws = draws.to(images.device)
        if self.deforms:
            images = transforms.warp(images, draws.warp)
        if self.shift:
            images = F.pad(images, [self.shift] * 4)
        cropped = transforms.crop(images, draws.top, draws.left, self.crop)  # [B, C, S, S] uint8
        if self.flip:
            cropped = transforms.flip(cropped, draws.mirrored)
        clean = transforms.to_unit(cropped)
        jittered = clean
        if self.brightness or self.contrast:
            jittered = transforms.jitter(clean, draws.brightness, draws.contrast)
        return Batch(self._network_input(jittered), labels, self._target(clean))

    def evaluate(self, images: Tensor, labels: Tensor, *, crops: int = 1) -> Batch:
        """The centre crop of each image; or several crops, side by side for each sample, see `mean_over_crops`."""
        self._check(images)
        if crops not in CROPS:
            raise ValueError(f"crops is {crops}, expected one of {', '.join(map(str, CROPS))}")
        if crops > 1 and min(images.shape[2:]) == self.crop:
            raise ValueError(
                f"images are as small as the crop, {self.crop}x{self.crop}: {crops} crops would all be the same"
            )
        views = [transforms.to_unit(transforms.crop_at(images, self.crop, *place)) for place in CROPS[crops]]
        stacked = views[0] if crops == 1 else torch.stack(views, dim=1).flatten(0, 1)  # [B * crops, C, S, S]
        return Batch(self._network_input(stacked), labels, self._target(views[0]))

    def _check(self, images: Tensor) -> None:
        if images.dim() != 4 or images.dtype != torch.uint8:
            raise ValueError(f"images are {images.dtype} {list(images.shape)}, expected uint8 [B, C, H, W]")
        if self.resize is not None and min(images.shape[2:]) != self.resize:
            height, width = images.shape[2:]
            raise ValueError(f"images are {height}x{width}, expected {self.resize}: prepare the split first")
        transforms.check_room(images, self.crop)

    def _network_input(self, images: Tensor) -> Tensor:
        if self.standardise == "image":
            images = transforms.standardise(images)
        elif self.standardise == "channel":
            images = transforms.standardise_channels(images)
        elif self.standardise == "set":
            if not self.mean:
                raise ValueError("standardise='set' needs the training set's statistics: use with_statistics(train)")
            images = transforms.standardise_by(images, self.mean, self.deviation)
        return images.contiguous(memory_format=torch.channels_last)

    def _target(self, clean: Tensor) -> Tensor:
        return transforms.resize(clean, TARGET_SIZE, TARGET_SIZE)


def mean_over_crops(scores: Tensor, batch: Batch) -> Tensor:
    """Average what a network says of the crops of a sample: ``[B * crops, ...]`` to ``[B, ...]``."""
    crops = len(scores) // max(1, len(batch.label))
    return scores if crops <= 1 else scores.reshape(-1, crops, *scores.shape[1:]).mean(1)


def preset(name: str, *, size: int | None = None, **changes: Any) -> Pipeline:
    """The pipeline of a data set for networks with inputs of ``size``; ``changes`` replace fields.

    smallNORB and turntable: random 64x64 crops of 96x96 (the paper), or 32x32 crops of 48x48; both with brightness and
    contrast jitter. MNIST and Fashion-MNIST: 28x28 resized to 32x32. CIFAR-10: as it is; pass ``shift=4, flip=True``
    for the usual augmentation. Any other name (an image folder): the shorter side resized to ``size``, with jitter.
    """
    spec = spec_of(name)
    size = spec.size if size is None else size
    fields: dict[str, Any] = {"crop": size, "resize": size * 3 // 2 if spec.cropped else size}
    if spec.jitter:
        fields |= {"brightness": 32 / 255, "contrast": 0.5}
    return Pipeline(**{**fields, **changes})
