"""A user's own arrays as images and labels."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchcaps.data.types import DataError

Images: TypeAlias = Tensor | npt.NDArray[np.generic]

SHAPES = "[N, H, W], [N, C, H, W] or [N, H, W, C]; or one image, [H, W] or [H, W, 3]"
LAST = (1, 3, 4)  # channels that may come last


def as_images(images: Images) -> Tensor:
    """Images as uint8 ``[N, C, H, W]``: from bytes 0 to 255, or floats in [0, 1].

    Grey ones may leave the channels out, ``[N, H, W]``; colours may come last, ``[N, H, W, 3]``. One image may leave
    N out: ``[H, W]``, or ``[H, W, 3]`` as Pillow and OpenCV give it. But ``[3, H, W]`` are three grey images.

    >>> as_images(np.full((2, 8, 8, 3), 0.2)).shape
    torch.Size([2, 3, 8, 8])
    """
    pixels = _as_tensor(images)
    shape = list(pixels.shape)
    if not pixels.numel():
        raise DataError(f"there are no images in shape {shape}: expected at least one")
    if pixels.dim() == 2 or (pixels.dim() == 3 and shape[2] == 3):
        pixels = pixels.unsqueeze(0)
    if pixels.dim() == 3:
        pixels = pixels.unsqueeze(1)
    if pixels.dim() != 4:
        raise DataError(f"images have shape {shape}, expected {SHAPES}")
    if pixels.shape[3] in LAST and pixels.shape[1] not in (1, 2, 3):
        pixels = pixels.permute(0, 3, 1, 2)  # [N, C, H, W]
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point():
        raise DataError(f"images are {pixels.dtype}, expected uint8 in 0 to 255 or floats in [0, 1]")
    low, high = (value.item() for value in pixels.aminmax())
    if not (low >= 0 and high <= 1):  # also where there is a NaN
        raise DataError(f"images are floats from {low:g} to {high:g}, expected [0, 1]; bytes 0 to 255 come as uint8")
    return (pixels * 255).round().to(torch.uint8)


def _as_tensor(images: Any) -> Tensor:
    if isinstance(images, Tensor):
        return images.detach().cpu()
    try:
        array = np.asarray(images)
    except ValueError as error:
        raise DataError(f"images of more than one shape, expected one array {SHAPES}") from error
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(f"images are {array.dtype}, expected uint8 in 0 to 255 or floats in [0, 1]")
    # Torch takes neither mirrored views nor the other byte order, and warns of memory that it may not write to.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def as_channels(images: Tensor, channels: int) -> Tensor:
    """Images ``[N, C, H, W]`` uint8 with as many channels as asked for: grey ones as colours, colours as grey ones.

    Grey is as bright as the colour looks, by the weights (ITU-R 601) and rounding that image files are read with.
    """
    found = images.shape[1]
    if found == channels:
        return images
    if (found, channels) == (1, 3):
        return images.expand(-1, 3, -1, -1)
    if (found, channels) == (3, 1):
        red, green, blue = images.to(torch.int32).unbind(1)  # [N, H, W] each
        return ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16).to(torch.uint8).unsqueeze(1)
    without_alpha = "; leave the transparency out, images[:, :3]" if found == 4 else ""
    raise DataError(f"images have {found} channels, expected {channels}{without_alpha}")


def as_labels(labels: Tensor | npt.ArrayLike, count: int, *, least: int = 2) -> tuple[Tensor, tuple[str, ...]]:
    """Labels ``[N]``, whole numbers or names, as class indices from 0; and the names of the classes, in order.

    Raises where there are fewer than ``least`` classes.

    >>> as_labels(["dog", "cat", "dog"], 3)
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,):
        raise DataError(f"labels have shape {list(values.shape)}, expected [{count}]: one for each image")
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values):
        values = values.astype(np.str_)  # as a column of a table comes
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "iubU":
        raise DataError(f"labels are {values.dtype}, expected whole numbers or strings")
    names, index = np.unique(values, return_inverse=True)
    if len(names) < least:
        only = f"all labels are {names[0]!s}" if len(names) else "there are no labels"
        raise DataError(f"{only}: expected at least two classes")
    return torch.from_numpy(index.astype(np.int64)), tuple(str(name) for name in names)
