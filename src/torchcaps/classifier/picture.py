"""An explanation as a picture: the input, its reconstruction, and the heat with its scale."""

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.classifier.explain import CAPTIONS, Explanation, colour_scale, heat_overlay
from torchcaps.data.captions import cut_to_fit
from torchcaps.data.decode import import_pillow
from torchcaps.data.writing import whole_file

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

PANEL = 256  # side of one picture
GAP = 16
SCALE, SCALE_LABELS = 12, 56  # widths of the bar of colours, and of the numbers beside it
TITLE_SIZE, CAPTION_SIZE = 24, 15
LONGEST_STEM = 50  # characters of up to four bytes, of the 255 bytes that a name may have
PAPER, INK, PALE_INK = "#ffffff", "#202124", "#6b7076"


def picture(explanation: Explanation, name: str) -> "Image":
    """Two or three panels side by side under the name of the class and its activation."""
    import_pillow()
    from PIL import Image, ImageDraw, ImageFont

    panels = {"input": _as_bytes(explanation.image)}
    if explanation.reconstruction is not None:
        panels["reconstruction"] = _as_bytes(explanation.reconstruction)
    panels[CAPTIONS[explanation.method]] = heat_overlay(explanation.image, explanation.heat)

    top = GAP + TITLE_SIZE + GAP
    width = GAP + len(panels) * (PANEL + GAP) + SCALE + SCALE_LABELS
    sheet = Image.new("RGB", (width, top + PANEL + CAPTION_SIZE + 2 * GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    title_font, caption_font = ImageFont.load_default(TITLE_SIZE), ImageFont.load_default(CAPTION_SIZE)
    figure = f"  {explanation.activation:.2f}"
    room = width - 2 * GAP - title_font.getlength(figure)
    title = fitting(name, title_font, room)
    draw.text((GAP, GAP), title, fill=INK, font=title_font)
    draw.text((GAP + title_font.getlength(title), GAP), figure, fill=PALE_INK, font=title_font)
    for column, (caption, pixels) in enumerate(panels.items()):
        left = GAP + column * (PANEL + GAP)
        sheet.paste(_panel(pixels), (left, top))
        draw.text((left, top + PANEL + GAP // 2), caption, fill=PALE_INK, font=caption_font)
    _draw_scale(sheet, draw, caption_font, (left + PANEL + GAP // 2, top), float(explanation.heat.max()))
    return sheet


def write_picture(sheet: "Image", path: Path) -> None:
    """As a PNG, whole or not at all."""
    content = BytesIO()
    sheet.save(content, format="PNG")
    with whole_file(path) as file:
        file.write(content.getvalue())


def free_name(folder: Path, stem: str) -> Path:
    """``stem.png`` in a folder, or the first free name with a number after it."""
    stem = stem[:LONGEST_STEM]
    path, number = folder / f"{stem}.png", 2
    while os.path.lexists(path):
        path, number = folder / f"{stem}-{number}.png", number + 1
    return path


def fitting(name: str, font: "Font", room: float) -> str:
    """The name on one line, cut where it is longer than the room."""
    return cut_to_fit(name, lambda text: font.getlength(text) <= room)


def _draw_scale(sheet: "Image", draw: "ImageDraw", font: "Font", corner: tuple[int, int], most: float) -> None:
    """The colours of the heat, from its maximum (a share of the whole heat, in one pixel) down to 0."""
    from PIL import Image

    left, top = corner
    bar = Image.fromarray(colour_scale(PANEL).permute(1, 2, 0).contiguous().numpy())
    sheet.paste(bar.resize((SCALE, PANEL)), corner)
    for label, y, anchor in ((f"{100 * most:.2g} %", top, "la"), ("0", top + PANEL, "ls")):
        draw.text((left + SCALE + GAP // 4, y), label, fill=PALE_INK, font=font, anchor=anchor)


def _as_bytes(image: Tensor) -> Tensor:
    return (image * 255).round().clamp(0, 255).to(torch.uint8)


def _panel(pixels: Tensor) -> "Image":
    """From ``[C, H, W]`` uint8; of the two channels of a stereo pair the first."""
    from PIL import Image

    colours = pixels if len(pixels) == 3 else pixels[:1].expand(3, -1, -1)  # [3, H, W]
    small = Image.fromarray(colours.permute(1, 2, 0).contiguous().numpy())
    # Enlarged pixels stay squares: that is what the network saw.
    return small.resize((PANEL, PANEL), Image.Resampling.NEAREST)
