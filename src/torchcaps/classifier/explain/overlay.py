"""Heat as colours."""

import torch
from torch import Tensor

# From cold to hot, in order of brightness too, for those who do not see the colours.
COLOURS = ((0.05, 0.03, 0.20), (0.45, 0.10, 0.45), (0.85, 0.25, 0.25), (0.98, 0.60, 0.10), (1.00, 0.95, 0.55))

DIMMED = 0.6  # the image's white, which else would outshine the heat


def heat_overlay(image: Tensor, heat: Tensor) -> Tensor:
    """The heat ``[S, S]`` in colours on the image ``[C, S, S]`` in grey: ``[3, S, S]`` uint8.

    No heat is nearly clear, and the hottest place is yellow: :func:`colour_scale` goes from 0 to the maximum.
    """
    level = heat / heat.max().clamp(min=torch.finfo(heat.dtype).tiny)  # [S, S] in [0, 1]
    grey = image.mean(0) if len(image) == 3 else image[0]  # [S, S]; of a stereo pair the left one
    return _blend(grey.to(heat), level)


def colour_scale(length: int) -> Tensor:
    """The colours of an overlay on black, from the maximum at the top to 0 at the bottom: ``[3, length, 1]`` uint8."""
    level = torch.linspace(1, 0, length).unsqueeze(1)  # [length, 1]
    return _blend(torch.zeros_like(level), level)


def _blend(grey: Tensor, level: Tensor) -> Tensor:
    place = level * (len(COLOURS) - 1)
    colours = torch.tensor(COLOURS, dtype=level.dtype, device=level.device)  # [K, 3]
    below = place.long().clamp(max=len(COLOURS) - 2)  # [H, W]
    colour = torch.lerp(colours[below], colours[below + 1], (place - below).unsqueeze(-1)).permute(2, 0, 1)  # [3, H, W]
    blended = torch.lerp(DIMMED * grey.expand(3, -1, -1), colour, 0.2 + 0.8 * level)
    return (blended * 255).round().to(torch.uint8)
