"""Transforms of whole batches, on any device, without a loop over samples.

Every result depends on its own sample only, bit for bit, so that a batch may be split over processes. Hence no sum that
torch would split over threads for one sample and not for fifty, and no fused multiply-add, which vector and scalar code
round differently.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data.types import Split

# Below this standard deviation (of pixels in [0, 1]) an image counts as constant: more than rounding gives, and less
# than a single pixel that differs by half a grey level gives in an image of a million.
CONSTANT = 1e-6


def crop(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Cut a square out of each image ``[B, C, H, W]``, its corner at ``top [B]``, ``left [B]``: ``[B, C, S, S]``."""
    check_room(images, size)
    windows = images.unfold(2, size, 1).unfold(3, size, 1)  # [B, C, H-S+1, W-S+1, S, S], a view
    sample = torch.arange(len(images), device=images.device)
    return windows[sample, :, top, left]  # [B, C, S, S]


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The middle of each image: ``[B, C, S, S]``, a view."""
    return crop_at(images, size, 0.5, 0.5)


def crop_at(images: Tensor, size: int, down: float, right: float) -> Tensor:
    """The same square of each image, a view; ``down`` and ``right`` from 0 (top, left) to 1 (bottom, right)."""
    check_room(images, size)
    top = int((images.shape[2] - size) * down)
    left = int((images.shape[3] - size) * right)
    return images[:, :, top : top + size, left : left + size]


def check_room(images: Tensor, size: int) -> None:
    height, width = images.shape[2:]
    if min(height, width) < size:
        raise ValueError(f"images are {height}x{width}, too small for a crop of {size}x{size}: set resize to {size}")


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror the images ``[B, C, H, W]`` for which ``mirrored [B]`` is true, left to right.

    Two channels are the cameras of a stereo pair. They change places: otherwise what is near would seem far.
    """
    mirror = images.flip(1, 3) if images.shape[1] == 2 else images.flip(3)
    return torch.where(mirrored.view(-1, 1, 1, 1), mirror, images)


def warp(images: Tensor, matrix: Tensor) -> Tensor:
    """Deform images ``[B, C, H, W]`` about their middle; beyond their edges the border pixels are repeated.

    ``matrix [B, 2, 2]`` leads from a place (right, down) in the new image to one in the old, between whose pixels is
    interpolated, in float32. What comes out has the type of what came in.
    """
    height, width = images.shape[2:]
    count = partial(torch.arange, dtype=torch.float32, device=images.device)
    right, down = count(width) - (width - 1) / 2, count(height).view(-1, 1) - (height - 1) / 2  # [W], [H, 1], in pixels
    xx, xy, yx, yy = matrix.float().flatten(1).T.unsqueeze(-1).unsqueeze(-1)  # [B, 1, 1] each
    # In units of half a side, from the middle, as grid_sample counts.
    places = torch.stack([(xx * right + xy * down) * (2 / width), (yx * right + yy * down) * (2 / height)], -1)
    moved = F.grid_sample(images.float(), places, padding_mode="border", align_corners=False)  # [B, C, H, W]
    return (moved if images.is_floating_point() else moved.round_()).to(images.dtype)


def to_unit(images: Tensor) -> Tensor:
    """Pixels 0 to 255 as float32 in [0, 1]."""
    return images.to(torch.float32, memory_format=torch.contiguous_format) / 255


def jitter(images: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Add ``brightness [B]``, scale by ``contrast [B]`` about the mean of each image, and clamp to [0, 1].

    The mean is that of all channels: with one for each, contrast would also shift colours.
    """
    contrast = contrast.view(-1, 1, 1, 1)
    # (x + b - mean(x + b)) c + mean(x + b), with the parts that do not depend on the pixel gathered in one number.
    offset = brightness.view(-1, 1, 1, 1) + image_mean(images) * (1 - contrast)  # [B, 1, 1, 1]
    return (images * contrast).add_(offset).clamp_(0, 1)


def standardise(images: Tensor) -> Tensor:
    """Zero mean and unit standard deviation for each image, over all channels; zeros for a constant image."""
    centred = images - image_mean(images)
    deviation = image_mean(centred * centred).sqrt_()  # [B, 1, 1, 1]
    # Dividing by infinity makes the zeros without a pass over the pixels.
    return centred.div_(deviation.masked_fill_(deviation < CONSTANT, torch.inf))


def standardise_channels(images: Tensor) -> Tensor:
    """Zero mean and unit standard deviation for each channel of each image by itself; zeros for a constant channel."""
    return standardise(images.flatten(0, 1).unsqueeze(1)).view(images.shape)  # each channel an image of its own


def standardise_by(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Subtract a mean and divide by a standard deviation, one of each for every channel."""
    if len(mean) != images.shape[1] or len(deviation) != images.shape[1]:
        raise ValueError(f"statistics of {len(mean)} channels for images of {images.shape[1]}")
    shape = (1, -1, 1, 1)
    return (images - images.new_tensor(mean).view(shape)).div_(images.new_tensor(deviation).view(shape))


def image_mean(images: Tensor) -> Tensor:
    """The mean of each image ``[B, C, H, W]``: ``[B, 1, 1, 1]``."""
    pixels = images[0].numel() if len(images) else 1
    # Rows first: a sum over one whole image would be split over threads, and round otherwise than in a batch.
    return (images.sum(-1).flatten(1).sum(1) / pixels).view(-1, 1, 1, 1)


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Resize float images: the mean of whole blocks where sizes divide, else bilinear with antialiasing."""
    if images.shape[2:] == (height, width) or not len(images):
        return images if len(images) else images.new_empty(0, images.shape[1], height, width)
    down, left_over_rows = divmod(images.shape[2], height)
    right, left_over_columns = divmod(images.shape[3], width)
    if not left_over_rows and not left_over_columns:
        return _block_mean(images, down, right)
    return F.interpolate(images, size=(height, width), mode="bilinear", antialias=True, align_corners=False)


def _block_mean(images: Tensor, down: int, right: int) -> Tensor:
    # Strided sums: faster on CPUs than pooling.
    rows = images[:, :, 0::down]
    for offset in range(1, down):
        rows = rows + images[:, :, offset::down]  # [B, C, H / down, W]
    total = rows[..., 0::right]
    for offset in range(1, right):
        total = total + rows[..., offset::right]  # [B, C, H / down, W / right]
    return total / (down * right)


def resize_split(split: Split, size: int, *, chunk: int = 1024) -> Split:
    """The split with the shorter side of its images resized to ``size``, as uint8; itself where it has that size."""
    count, channels, height, width = split.images.shape
    shorter = min(height, width)
    if shorter == size:
        return split
    height, width = round(height * size / shorter), round(width * size / shorter)
    # Chunks, because the floats of a whole split may not fit into memory.
    images = split.images.new_empty(count, channels, height, width)
    for start in range(0, count, chunk):
        resized = resize(split.images[start : start + chunk].float(), height, width)
        images[start : start + chunk] = resized.round_().clamp_(0, 255).to(torch.uint8)
    return replace(split, images=images)


def channel_statistics(split: Split, *, chunk: int = 4096) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel over all images, pixels in [0, 1]; exact, from integer counts."""
    return statistics_of(torch.split(split.images, chunk))


def statistics_of(parts: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The same of images ``[n, C, H, W]`` that come part by part."""
    counts = sum(levels_of(part) for part in parts)  # [C, 256]
    assert isinstance(counts, Tensor)
    levels = torch.arange(256, dtype=torch.float64) / 255
    share = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)  # [C, 256]
    mean = share @ levels  # [C]
    deviation = (share @ levels.square() - mean.square()).clamp(min=0).sqrt()
    # A channel that never changes is all zeros after its mean is taken off; any divisor will do.
    deviation[deviation < CONSTANT] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())


def levels_of(images: Tensor) -> Tensor:
    """How often each channel of images ``[n, C, H, W]`` uint8 has each level: ``[C, 256]``."""
    return torch.stack([torch.bincount(channel.flatten(), minlength=256).cpu() for channel in images.unbind(1)])
