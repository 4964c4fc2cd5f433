"""Tensors as PNG images inside of the page."""

from base64 import b64encode
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.decode import import_pillow
from torchcaps.report.markup import Html, tag


def picture(pixels: Tensor, alt: str, **attributes: str | float) -> Html:
    """An image element of ``[C, H, W]``: uint8, or floats in [0, 1].

    One channel is grey, three are colours, four have transparency; of others (the cameras of a stereo pair) the first
    is shown.
    """
    height, width = pixels.shape[1:]
    return tag("img", src=data_uri(pixels), alt=alt, width=width, height=height, **attributes)


def strip(tiles: Tensor, gap: int = 1) -> Tensor:
    """Tiles ``[n, C, H, W]`` side by side, transparent between them: ``[4, H, n W + (n - 1) gap]`` uint8."""
    pixels = to_bytes(tiles)
    count, channels, height, width = pixels.shape
    colours = pixels if channels == 3 else pixels[:, :1].expand(-1, 3, -1, -1)  # [n, 3, H, W]
    opaque = torch.full((count, 1, height, width), 255, dtype=torch.uint8)
    cells = torch.cat([colours, opaque], 1)  # [n, 4, H, W]
    cells = torch.nn.functional.pad(cells, [0, gap])  # zeros: transparent
    return cells.permute(1, 2, 0, 3).flatten(2)[:, :, : count * (width + gap) - gap]


def to_bytes(pixels: Tensor) -> Tensor:
    """As uint8."""
    if pixels.dtype == torch.uint8:
        return pixels
    return (pixels.nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8)


def data_uri(pixels: Tensor) -> str:
    """The PNG file itself as an address."""
    return png_uri(png(pixels))


def png_uri(content: bytes) -> str:
    """A PNG file as an address."""
    return "data:image/png;base64," + b64encode(content).decode()


def png(pixels: Tensor) -> bytes:
    """The PNG file of ``[C, H, W]``."""
    pillow: Any = import_pillow()
    channels = to_bytes(pixels).cpu()
    if len(channels) in (3, 4):
        image = pillow.fromarray(channels.permute(1, 2, 0).contiguous().numpy())
    else:
        image = pillow.fromarray(channels[0].contiguous().numpy())
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    return file.getvalue()
