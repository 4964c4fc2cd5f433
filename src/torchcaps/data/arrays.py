"""A user's own arrays as images."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchcaps.data.types import DataError

Images: TypeAlias = Tensor | npt.NDArray[np.generic]


def as_images(images: Images) -> Tensor:
    """Images as uint8 ``[N, C, H, W]``: from bytes 0 to 255 or floats in [0, 1].

    Grey ones may leave the channels out, ``[N, H, W]``; colours may come last, ``[N, H, W, 3]``.

    >>> as_images(np.full((2, 8, 8, 3), 0.2)).shape
    torch.Size([2, 3, 8, 8])
    """
    pixels = torch.as_tensor(images)
    if pixels.dim() == 3:
        pixels = pixels.unsqueeze(1)
    if pixels.dim() != 4 or not pixels.numel():
        raise DataError(f"images have shape {list(pixels.shape)}, wanted [N, H, W], [N, C, H, W] or [N, H, W, C]")
    if pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 2, 3):
        pixels = pixels.permute(0, 3, 1, 2)  # [N, C, H, W]
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point():
        raise DataError(f"images are {pixels.dtype}, wanted uint8 in 0 to 255 or floats in [0, 1]")
    low, high = (value.item() for value in pixels.aminmax())
    if not (low >= 0 and high <= 1):  # also where there is a NaN
        raise DataError(f"images are floats from {low:g} to {high:g}, wanted [0, 1]; bytes 0 to 255 come as uint8")
    return (pixels * 255).round().to(torch.uint8)


def as_labels(labels: Tensor | npt.ArrayLike, count: int) -> tuple[Tensor, tuple[str, ...]]:
    """Labels ``[N]`` as class indices, and the names of the classes: numbers from 0, or anything that can be sorted."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,):
        raise DataError(f"labels have shape {list(values.shape)}, wanted [{count}]: one for each image")
    if values.dtype.kind not in "iubUS":
        raise DataError(f"labels are {values.dtype}, wanted whole numbers or strings")
    names, index = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"all labels are {names[0]!s}: wanted at least two classes")
    return torch.from_numpy(index.astype(np.int64)), tuple(str(name) for name in names)
