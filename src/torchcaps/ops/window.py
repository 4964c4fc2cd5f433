"""Which input capsules each output position sees."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad, unfold

from torchcaps.types import POSE_SIDE, Capsules


class Window(NamedTuple):
    """A receptive field that slides over a map, each of height and width."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Number of positions in each direction; raises where the field is larger than the padded map."""
        (kh, kw), (sh, sw), (ph, pw) = self
        if height + 2 * ph < kh or width + 2 * pw < kw:
            raise ValueError(
                f"a {kh}x{kw} field does not fit into a {height}x{width} map with padding {ph}x{pw}: "
                "expected a larger map, a smaller kernel_size, or more padding"
            )
        return (height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1


def matrices_of_fields(weight: Tensor, capsules: int, window: Window) -> Tensor:
    """``[I, J, 4, 4]`` from itself, or from matrices ``[n, J, 4, 4]`` that all places of a field share."""
    kh, kw = window.kernel_size
    inputs = kh * kw * capsules
    if weight.shape[0] == inputs or weight.shape[0] != capsules:
        return weight
    return weight.expand(kh * kw, *weight.shape).flatten(0, 1)  # inputs run row, column, capsule


def gather_fields(capsules: Capsules, window: Window) -> tuple[Tensor, Tensor]:
    """The capsules of every receptive field, in the order row, column, capsule; padding adds zeros.

    Shapes: -> pose ``[B, Ho, Wo, I, 4, 4]``, activation ``[B, Ho, Wo, I]`` with I = kh kw n.
    """
    batch, n, *size = capsules.activation.shape
    height, width = window.output_size(*size)
    (kh, kw), (sh, sw), (ph, pw) = window
    inputs = kh * kw * n
    fields_are_tiles = (sh == kh or height == 1) and (sw == kw or width == 1)

    def fields(maps: Tensor) -> Tensor:
        maps = pad(maps, (pw, pw, ph, ph)) if ph or pw else maps
        channels = maps.shape[1]
        if fields_are_tiles:
            tiles = maps[:, :, : height * kh, : width * kw].reshape(batch, channels, height, kh, width, kw)
            return tiles.permute(0, 2, 4, 3, 5, 1)  # [B, Ho, Wo, kh, kw, channels]
        # Not Tensor.unfold: compiled by Inductor (torch 2.13), its backward pass writes outside of its memory.
        columns = unfold(maps, (kh, kw), stride=(sh, sw))  # [B, channels kh kw, Ho Wo]
        return columns.reshape(batch, channels, kh, kw, height, width).permute(0, 4, 5, 2, 3, 1)

    pose = fields(capsules.pose).reshape(batch, height, width, inputs, POSE_SIDE, POSE_SIDE)
    return pose, fields(capsules.activation).reshape(batch, height, width, inputs)
