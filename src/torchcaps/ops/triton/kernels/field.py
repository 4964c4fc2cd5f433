"""One receptive field: where its capsules lie, and their votes, made block by block.

Shapes in this package: a block has R input capsules of one place (``HOW.rows``) and L output capsules (``HOW.lanes``, J
filled up to a power of two). Votes are ``[4, 4, R, L]``, so that a thread has whole matrices in its registers; what
belongs to a pair is ``[R, L]``, to an input capsule ``[R, 1]``, to an output capsule ``[1, L]``, and a centre is
``[4, 4, 1, L]``.
"""

from typing import NamedTuple

import triton
import triton.language as tl


class Maps(NamedTuple):
    """Pointers to what is read."""

    pose: object
    activation: object
    weight: object  # packed: [16, rows of the matrices, J]
    offset: object  # [I, 16]


class Sizes(NamedTuple):
    """Sizes and strides of the maps, and the window."""

    height: object
    width: object
    out_height: object
    out_width: object
    pose: object  # strides of image, channel, row, column
    activation: object
    field_width: object
    places: object
    stride: object
    padding: object
    matrices: object  # their rows: I, or n where all places share them


class Field(NamedTuple):
    """Pointers to the first R input capsules of a field, and where the field lies."""

    pose: object  # [4, 1, R, L], to column 0
    activation: object  # [R, 1]
    weight: object  # [1, 4, R, L], to row 0
    offset: object  # [4, 4, R, L]
    row: object
    column: object
    sizes: object


class Block(NamedTuple):
    """R input capsules of one place."""

    place: object
    capsule: object  # the first of them
    pose_shift: object  # to their poses, from those of the field's first capsules
    activation_shift: object
    present: object  # [R, 1]: whether there is such a capsule
    inside: object  # [R, 1]: and whether its place is in the map, and not in its padding
    pair: object  # [R, L]: and whether there is such an output capsule
    activation: object  # [R, 1], 0 where it is below 0
    on: object  # [R, 1]: whether it has a vote


SMALLEST_ACTIVATION: tl.constexpr = tl.constexpr(2.0**-100)  # as in torchcaps.functional.weights


@triton.jit
def pose_index(stride, HOW: tl.constexpr):
    """Column 0 of the poses of the first R capsules, in channels that are so far apart: ``[4, 1, R, L]``.

    All lanes have the same: that they read one address costs less than to hand around what one of them read.
    """
    matrix_row = 4 * tl.arange(0, 4)[:, None, None, None]
    capsule = 16 * tl.arange(0, HOW.rows)[None, None, :, None]
    return (matrix_row + capsule) * stride + tl.zeros([1, 1, 1, HOW.lanes], tl.int32)


@triton.jit
def matrix_index(matrices, HOW: tl.constexpr):
    """Row 0 of the matrices of the first R capsules, in the packed ones: ``[1, 4, R, L]``."""
    pair = tl.arange(0, HOW.rows)[:, None] * HOW.outputs + tl.arange(0, HOW.lanes)[None, :]
    return tl.arange(0, 4)[None, :, None, None] * (matrices * HOW.outputs) + pair[None, None, :, :]


@triton.jit
def field_at(number, maps, sizes, HOW: tl.constexpr):
    """The field of that number, counted through images, rows and columns."""
    column = number % sizes.out_width * sizes.stride[1] - sizes.padding[1]
    row = number // sizes.out_width % sizes.out_height * sizes.stride[0] - sizes.padding[0]
    image = tl.cast(number // (sizes.out_width * sizes.out_height), tl.int64)
    pose = maps.pose + (image * sizes.pose[0] + row * sizes.pose[2] + column * sizes.pose[3])
    activation = image * sizes.activation[0] + row * sizes.activation[2] + column * sizes.activation[3]
    element = 4 * tl.arange(0, 4)[:, None, None, None] + tl.arange(0, 4)[None, :, None, None]  # [4, 4, 1, 1]
    offset = element + 16 * tl.arange(0, HOW.rows)[None, None, :, None] + tl.zeros([1, 1, 1, HOW.lanes], tl.int32)
    return Field(
        pose + pose_index(sizes.pose[1], HOW),
        maps.activation + (activation + tl.arange(0, HOW.rows)[:, None] * sizes.activation[1]),
        maps.weight + matrix_index(sizes.matrices, HOW),
        maps.offset + offset,
        row,
        column,
        sizes,
    )


@triton.jit
def steps(field, HOW: tl.constexpr):
    """Number of blocks; none crosses from one place to the next."""
    return field.sizes.places * ((HOW.inputs + HOW.rows - 1) // HOW.rows)


@triton.jit
def block_at(field, step, HOW: tl.constexpr):
    """The block of that number, with its activations."""
    blocks: tl.constexpr = (HOW.inputs + HOW.rows - 1) // HOW.rows
    sizes = field.sizes
    place = step // blocks
    first = (step % blocks) * HOW.rows
    down, right = place // sizes.field_width, place % sizes.field_width
    row, column = field.row + down, field.column + right
    inside = (row >= 0) & (row < sizes.height) & (column >= 0) & (column < sizes.width)
    capsule = first + tl.arange(0, HOW.rows)[:, None]
    present = capsule < HOW.inputs
    inside = capsule < tl.where(inside, HOW.inputs, 0)
    pose_shift = 16 * first * sizes.pose[1] + down * sizes.pose[2] + right * sizes.pose[3]
    activation_shift = first * sizes.activation[1] + down * sizes.activation[2] + right * sizes.activation[3]
    activation = tl.load(field.activation + activation_shift, mask=inside, other=0.0).to(tl.float32)
    activation = tl.where(activation < 0, 0.0, activation)
    pair = present & (tl.arange(0, HOW.lanes) < HOW.outputs)[None, :]
    on = activation >= SMALLEST_ACTIVATION
    return Block(place, first, pose_shift, activation_shift, present, inside, pair, activation, on)


@triton.jit
def matrix_shift(block, HOW: tl.constexpr):
    """To the matrices of a block, from those of the field's first capsules."""
    return (block.capsule if HOW.shared else block.capsule + block.place * HOW.inputs) * HOW.outputs


@triton.jit
def pose_column(field, block, b: tl.constexpr, HOW: tl.constexpr):
    """Column b of each capsule's pose: ``[4, 1, R, L]``."""
    at = field.pose + (block.pose_shift + b * field.sizes.pose[1])
    return tl.load(at, mask=block.inside[None, None, :, :], other=0.0).to(tl.float32)


@triton.jit
def matrix_row(field, block, b: tl.constexpr, HOW: tl.constexpr):
    """Row b of each pair's matrix: ``[1, 4, R, L]``."""
    at = field.weight + (matrix_shift(block, HOW) + 4 * b * field.sizes.matrices * HOW.outputs)
    return tl.load(at, mask=block.pair[None, None, :, :], other=0.0)


@triton.jit
def votes_of(field, block, HOW: tl.constexpr):
    """The votes of a block, ``[4, 4, R, L]``: pose times matrix, the same bits in every sweep."""
    votes = pose_column(field, block, 0, HOW) * matrix_row(field, block, 0, HOW)
    for b in tl.static_range(1, 4):
        votes = tl.fma(pose_column(field, block, b, HOW), matrix_row(field, block, b, HOW), votes)
    if HOW.has_offset:
        at = field.offset + 16 * (block.capsule + block.place * HOW.inputs)
        votes += tl.load(at, mask=block.present[None, None, :, :], other=0.0)
    return votes
