"""Host code of the kernels: what they are given, the workspace, and the two launches."""

import os
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import UserError
from torchcaps.ops.triton import table
from torchcaps.ops.triton.how import How, as_constants
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIZE

WORKSPACE = 64 * 2**20  # bytes, at most, for the parts of the weights' gradient (one part may be larger)
MOST_PROGRAMS = 1024  # and so many parts at most
MOST_ELEMENTS = 2**31  # of one image: offsets inside of it are 32-bit numbers
INTERPRET = "TRITON_INTERPRET"
_INTERPRETED = os.environ.get(INTERPRET, "0").lower() in ("1", "true", "on", "yes", "y")  # Triton looks only once, too


class Call(NamedTuple):
    """The tensors of a call, as the kernels read them, and how it is computed."""

    pose: Tensor
    activation: Tensor
    weight: Tensor  # [n or I, J, 4, 4]
    first: Tensor
    second: Tensor
    bandwidth: Tensor
    offset: Tensor | None
    window: Window
    how: How

    @property
    def size(self) -> tuple[int, int]:
        return self.window.output_size(self.pose.shape[2], self.pose.shape[3])

    @property
    def fields(self) -> int:
        return self.pose.shape[0] * self.size[0] * self.size[1]

    def pointers(self) -> tuple[Tensor, ...]:
        """Of the maps and parameters; the maps are read where they are, the matrices are packed ``[16, rows, J]``."""
        packed = self.weight.detach().permute(2, 3, 0, 1).contiguous().float()
        offset = packed if self.offset is None else precise(self.offset)
        rest = (precise(self.first), precise(self.second), precise(self.bandwidth))
        return self.pose.detach(), self.activation.detach(), packed, offset, *rest

    def sizes(self) -> tuple[int, ...]:
        (kh, kw), stride, padding = self.window
        maps = (*self.pose.shape[2:], *self.size, *self.pose.stride(), *self.activation.stride())
        return *maps, kw, kh * kw, *stride, *padding, self.weight.shape[0]


def precise(parameter: Tensor) -> Tensor:
    return parameter.detach().contiguous().float()


def is_interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter."""
    return _INTERPRETED


class LaunchError(UserError, RuntimeError):
    """A kernel could not be compiled or launched on this GPU."""


def launch(kernel: Any, programs: int, arguments: tuple[Any, ...], how: How, name: str) -> None:
    """Run a kernel with the launch parameters of its call."""
    if is_interpreted():
        from torchcaps.ops.triton.interpreter import prepared_once

        with prepared_once():
            kernel[(programs,)](*arguments, table.chosen(how, name)[0])
        return

    def run(parameters: tuple[How, int]) -> None:
        how, warps = as_constants(parameters[0]), parameters[1]
        kernel[(programs,)](*arguments, how, **table.compiler_options(warps, nvidia=torch.version.hip is None))

    with torch.cuda.device(arguments[0].device):
        try:
            run(table.tuned(how, name, run) if table.autotunes() else table.chosen(how, name))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # Triton's own, of the compiler and of the driver
            raise LaunchError(
                f"the Triton kernel {name!r} could not run ({type(error).__name__}: {error}): choose another backend, "
                'torchcaps.use_backend("compiled") or use_backend("reference"), and please report it'
            ) from error


def kernel_of(name: str) -> Any:
    """The kernel; triton is imported now, which may be there and still not work."""
    try:
        return getattr(import_module(f"torchcaps.ops.triton.kernels.{name}"), name)
    except Exception as error:
        raise LaunchError(
            f"triton is installed but cannot be used ({type(error).__name__}: {error}): install it again, or choose "
            'another backend, torchcaps.use_backend("compiled") or use_backend("reference")'
        ) from error


def forward(call: Call, affine: tuple[Tensor, Tensor] | None, out: tuple[Tensor, Tensor]) -> None:
    """Write poses ``[B, Ho, Wo, 16 J]`` and activations ``[B, Ho, Wo, J]``."""
    if not call.fields:
        return
    how = call.how._replace(has_affine=affine is not None)
    pointers = call.pointers()
    scale, shift = (precise(a) for a in affine) if affine is not None else (pointers[4], pointers[4])
    launch(kernel_of("forward"), call.fields, (*pointers, scale, shift, *out, *call.sizes()), how, "forward")


def backward(call: Call, by_pose: Tensor, by_activation: Tensor) -> tuple[Tensor, ...]:
    """Gradients by the six tensors, from those by the outputs."""
    how = call.how
    rows, outputs = call.weight.shape[:2]
    programs = number_of_parts(call.fields, rows * outputs)
    new = call.pose.new_empty
    parts = [
        new(programs, *shape, dtype=torch.float32)
        for shape in ((16, rows, outputs), call.first.shape, (outputs,), (outputs,))
    ]
    poses, activations = Receiver(call, POSE_SIZE), Receiver(call, 1)
    if call.fields:
        given = (by_pose.contiguous(), by_activation.contiguous())
        taken = (poses.maps, activations.maps, *parts)
        where = (call.fields, *poses.strides, *activations.strides)
        arguments = (*call.pointers(), *given, *taken, *call.sizes(), *where)
        launch(kernel_of("backward"), programs, arguments, how, "backward")
    weight, first, second, bandwidth = (part.sum(0) for part in parts)
    weight = weight.reshape(4, 4, rows, outputs).permute(2, 3, 0, 1)
    bandwidth = bandwidth.sum() if how.method != "em" else torch.zeros_like(call.bandwidth)
    of = (call.weight, call.first, call.second, call.bandwidth)
    found = (weight, first, second, bandwidth)
    return poses.sum(), activations.sum(), *(g.to(p.dtype).contiguous() for g, p in zip(found, of, strict=True))


def number_of_parts(fields: int, matrices: int) -> int:
    """How many programs walk through the fields, each with a part of the weights' gradient."""
    return min(fields, MOST_PROGRAMS, max(1, WORKSPACE // (matrices * POSE_SIZE * 4)))


class Receiver:
    """What the gradients by a map are written to: the map itself where fields do not overlap, else one copy of each
    field's capsules, which are added up in the order of their places.
    """

    def __init__(self, call: Call, size: int) -> None:
        self.window, self.of = call.window, call.pose if size == POSE_SIZE else call.activation
        batch, _, height, width = call.pose.shape
        (kh, kw), (sh, sw), (ph, pw) = call.window
        self.size = rows, columns = call.size
        channels = size * call.how.inputs
        self.overlap = (sh < kh and rows > 1) or (sw < kw and columns > 1)
        if self.overlap:
            if rows * columns * kh * kw * channels >= MOST_ELEMENTS:
                raise LaunchError(
                    f"the gradient of {rows}x{columns} overlapping fields of {kh}x{kw} is too large for the Triton "
                    'kernels: choose another backend, torchcaps.use_backend("compiled") or use_backend("reference")'
                )
            self.maps = self.of.new_empty(batch, rows, columns, kh, kw, channels, dtype=torch.float32)
            b, y, x, h, w, c = self.maps.stride()
            self.strides = (b, y, x, c, h, w)
            return
        everywhere = rows * kh == height + 2 * ph and columns * kw == width + 2 * pw
        new = self.of.new_empty if everywhere else self.of.new_zeros  # the gradient by what no field sees
        self.maps = new(batch, height + 2 * ph, width + 2 * pw, channels)
        b, h, w, c = self.maps.stride()
        self.strides = (b, sh * h, sw * w, c, h, w)

    def sum(self) -> Tensor:
        """``[B, channels, H, W]``, channels-last, of the map's type."""
        (kh, kw), (sh, sw), (ph, pw) = self.window
        height, width = self.of.shape[2:]
        total = self.maps
        if self.overlap:
            rows, columns = self.size
            total = self.maps.new_zeros(len(self.maps), height + 2 * ph, width + 2 * pw, self.maps.shape[-1])
            for y in range(kh):
                for x in range(kw):
                    total[:, y : y + sh * rows : sh, x : x + sw * columns : sw] += self.maps[:, :, :, y, x]
        total = total[:, ph : ph + height, pw : pw + width]
        return total.to(self.of.dtype).contiguous().permute(0, 3, 1, 2)
