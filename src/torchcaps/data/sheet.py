"""A picture of a data set: some images of every class, with its name."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.data.captions import cut_to_fit
from torchcaps.data.decode import import_pillow
from torchcaps.data.types import DataError, Split

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

GAP = 4  # pixels between images
LABEL_WIDTH = 200  # at most; longer names are cut
LABEL_SIZE = 15
PAPER, INK = "#ffffff", "#202124"


def contact_sheet(
    split: Split,
    classes: tuple[str, ...],
    path: str | Path,
    *,
    per_class: int = 10,
    cell: int | None = None,
    seed: int = 0,
) -> Path:
    """Write a PNG with a row for each class: its name, and ``per_class`` of its images, drawn at random.

    Images are enlarged by whole factors to about ``cell`` pixels (default: at least 64). Of two channels (the cameras
    of a stereo pair) the first is shown.
    """
    import_pillow()
    from PIL import Image, ImageDraw, ImageFont

    if per_class < 1:
        raise ValueError(f"per_class is {per_class}, expected at least 1")
    font = ImageFont.load_default(LABEL_SIZE)
    names = [_fitting(name, font) for name in classes]
    height, width = split.images.shape[2:]
    factor = max(1, round((cell or max(64, height)) / height))
    height, width = height * factor, width * factor
    row = max(height, LABEL_SIZE + GAP)
    margin = int(max(font.getlength(name) for name in names)) + 3 * GAP
    sheet = Image.new("RGB", (margin + per_class * (width + GAP), GAP + len(classes) * (row + GAP)), PAPER)
    draw = ImageDraw.Draw(sheet)
    generator = torch.Generator().manual_seed(seed)
    for label, name in enumerate(names):
        top = GAP + label * (row + GAP)
        draw.text((GAP, top + row / 2), name, fill=INK, font=font, anchor="lm")
        of_class = (split.labels == label).nonzero().squeeze(1)
        chosen = of_class[torch.randperm(len(of_class), generator=generator)[:per_class]]
        for column, index in enumerate(chosen.tolist()):
            picture = _picture(split.images[index]).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(picture, (margin + column * (width + GAP), top))
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(path, format="PNG")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _picture(pixels: Tensor) -> "Image":
    """From ``[C, H, W]`` uint8."""
    from PIL import Image

    if len(pixels) == 3:
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().cpu().numpy())
    return Image.fromarray(pixels[0].contiguous().cpu().numpy())


def _fitting(name: str, font: "Font") -> str:
    """The name on one line, cut where it is longer than the margin."""
    return cut_to_fit(name, lambda text: font.getlength(text) <= LABEL_WIDTH)
