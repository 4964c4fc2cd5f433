"""One image file, of any size and mode, as a square of 8-bit pixels."""

import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.types import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
MAX_PIXELS = 100_000_000  # a hostile file of a few kilobytes may claim more than any memory holds


def read_image(path: Path, size: int, channels: int) -> Tensor:
    """The image at ``path``, its shorter side resized to ``size`` and the middle cut out: ``[C, size, size]`` uint8.

    One channel is grey, three are colours. Transparent parts become white, 16 bits become 8, a camera's note on which
    side is up is followed, and of several pages or frames the first one counts. Raises :class:`DataError` with the file
    and the reason.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pixels = decode(path, size, channels)
    if isinstance(pixels, str):
        raise DataError(f"{path} is not an image that can be used: {pixels}")
    return pixels


def decode(path: Path, size: int, channels: int) -> Tensor | str:
    """The pixels ``[C, size, size]`` uint8, or the reason why there are none.

    Pillow warns of much that does not matter here; the caller switches that off, which is not safe in threads.
    """
    image_module = import_pillow()
    if not has_image_name(path):
        return f"its name does not end in one of {', '.join(EXTENSIONS)}"
    try:
        if path.stat().st_size == 0:
            return "the file is empty"
        # From an open file Pillow maps no memory: there it mixes up the sides of a TIFF that lies on one of them.
        with path.open("rb") as file, image_module.open(file, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                return f"{width}x{height} pixels are more than {MAX_PIXELS // 10**6} million"
            # Lets JPEG decode at a half, quarter or eighth of its size: photographs load faster.
            image.draft(None, (2 * size, 2 * size))
            return _pixels(image, size, channels)
    except image_module.UnidentifiedImageError:
        return f"it does not hold an image in one of the formats {', '.join(FORMATS)}"
    except image_module.DecompressionBombError:
        return f"it has more than {MAX_PIXELS // 10**6} million pixels"
    except OSError as error:
        return error.strerror or str(error)
    except DataError as error:
        return str(error)
    except Exception as error:  # Pillow's decoders raise whatever a broken file makes them stumble over
        return f"it is broken ({type(error).__name__}: {error})"


def has_image_name(path: Path) -> bool:
    """Whether a file is meant to be an image, by the end of its name."""
    return path.suffix.lower() in EXTENSIONS


def _pixels(image: "Image", size: int, channels: int) -> Tensor:
    from PIL import Image, ImageOps

    image.load()  # which turns a TIFF already
    upright = image
    with suppress(Exception):  # a broken note on which side is up is no reason to do without the picture
        upright = ImageOps.exif_transpose(image)
    plain = _without_alpha(_eight_bit(upright)).convert("L" if channels == 1 else "RGB")
    width, height = plain.size
    shorter = min(width, height)
    # Cutting and resizing at once; Pillow's resize averages over all the pixels that it drops.
    left, top = (width - shorter) / 2, (height - shorter) / 2
    box = (left, top, left + shorter, top + shorter)
    square = plain.resize((size, size), Image.Resampling.BILINEAR, box=box)
    array = np.array(square, dtype=np.uint8).reshape(size, size, channels)
    return torch.from_numpy(array.transpose(2, 0, 1).copy())  # [C, size, size]


def as_pixels(image: "Image") -> Tensor:
    """An image of Pillow's as it is: ``[1, H, W]`` uint8 where it is grey, else ``[3, H, W]``."""
    plain = _without_alpha(_eight_bit(image))
    array = np.array(plain if plain.mode == "L" else plain.convert("L" if plain.mode == "1" else "RGB"))
    return torch.from_numpy(array.reshape(plain.height, plain.width, -1).transpose(2, 0, 1).copy())  # [C, H, W]


def _eight_bit(image: "Image") -> "Image":
    """Sixteen grey bits as eight; Pillow's own conversion cuts everything above 255 off."""
    from PIL import Image

    if image.mode[0] not in "IF":
        return image
    values = np.asarray(image).astype(np.float64)
    low, high = values.min(), values.max()
    if image.mode == "F" or low < 0 or high > 65535:  # white could be any number
        raise DataError(f"its pixels are numbers from {low:g} to {high:g}, expected 8 or 16 bits: convert it")
    return Image.fromarray(np.rint(values / 257).astype(np.uint8))


def _without_alpha(image: "Image") -> "Image":
    """Transparent pixels become white, as on a page."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    with_alpha = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", with_alpha.size, "white"), with_alpha)


def import_pillow() -> Any:
    """The module ``PIL.Image``, or an error that says how to get it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading images needs Pillow: pip install 'torchcaps[data]'") from error
    return Image
