"""The forward pass: one program per field."""

from typing import NamedTuple

import triton
import triton.language as tl

from torchcaps.ops.triton.kernels.cluster import cluster, coupling
from torchcaps.ops.triton.kernels.elementary import density, distance, is_output, over_inputs, softmax
from torchcaps.ops.triton.kernels.field import Maps, Sizes, block_at, field_at, steps, votes_of


class Parameters(NamedTuple):
    """The method's parameters, first and second, loaded: beta ``[4, 4, 1, L]`` and beta0 ``[1, L]``, or beta_u and
    beta_a ``[1, L]``.
    """

    first: object
    second: object


@triton.jit
def centre_index(HOW: tl.constexpr):
    """Of ``[J, 16]`` and its mask: ``[4, 4, 1, L]``."""
    lane = tl.arange(0, HOW.lanes)[None, None, None, :]
    element = 4 * tl.arange(0, 4)[:, None, None, None] + tl.arange(0, 4)[None, :, None, None]
    return 16 * lane + element, (lane < HOW.outputs) & (element < 16)


@triton.jit
def lane_index(HOW: tl.constexpr):
    """``[1, L]``"""
    return tl.arange(0, HOW.lanes)[None, :]


@triton.jit
def load_parameters(first, second, HOW: tl.constexpr):
    """First and second parameter of the method."""
    second = tl.load(second + lane_index(HOW), mask=is_output(HOW), other=0.0)
    if HOW.method == "em":
        return Parameters(tl.load(first + lane_index(HOW), mask=is_output(HOW), other=0.0), second)
    else:
        at, mask = centre_index(HOW)
        return Parameters(tl.load(first + at, mask=mask, other=0.0), second)


@triton.jit
def output_activation(field, states, parameters, inverse_bandwidth, HOW: tl.constexpr):
    """Eq. 8, or EM's: ``[1, L]``."""
    last: tl.constexpr = HOW.iterations - 1
    if HOW.method == "em":
        return tl.sigmoid(states[last].logit)
    else:
        target = parameters.first * states[last].centre
        score = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
        for step in range(steps(field, HOW)):
            block = block_at(field, step, HOW)
            votes = votes_of(field, block, HOW)
            r = coupling(votes, block, states, last, inverse_bandwidth, HOW)
            y = (distance(votes - target, HOW.distance) + parameters.second) * (1 / HOW.activation_bandwidth)
            score += r * block.activation * density(y, HOW.activation_kernel)
        return softmax(over_inputs(score), HOW)


@triton.jit
def forward(
    pose,
    activation,
    weight,
    offset,
    first,
    second,
    bandwidth,
    scale,
    shift,
    out_pose,
    out_activation,
    height,
    width,
    out_height,
    out_width,
    pose_b,
    pose_c,
    pose_h,
    pose_w,
    activation_b,
    activation_c,
    activation_h,
    activation_w,
    field_width,
    places,
    stride_h,
    stride_w,
    padding_h,
    padding_w,
    matrices,
    HOW: tl.constexpr,
):
    """Poses ``[fields, J, 16]`` and activations ``[fields, J]``."""
    maps = Maps(pose, activation, weight, offset)
    strides = (pose_b, pose_c, pose_h, pose_w), (activation_b, activation_c, activation_h, activation_w)
    window = (stride_h, stride_w), (padding_h, padding_w)
    sizes = Sizes(height, width, out_height, out_width, *strides, field_width, places, *window, matrices)
    number = tl.program_id(0)
    field = field_at(number, maps, sizes, HOW)
    parameters = load_parameters(first, second, HOW)
    inverse_bandwidth = 1 / tl.load(bandwidth)
    states = cluster(field, parameters, inverse_bandwidth, HOW)
    found = output_activation(field, states, parameters, inverse_bandwidth, HOW)
    at, mask = centre_index(HOW)
    centre = states[HOW.iterations - 1].centre
    if HOW.has_affine:
        centre = tl.load(scale + at, mask=mask, other=0.0) * centre + tl.load(shift + at, mask=mask, other=0.0)
    base = number.to(tl.int64) * HOW.outputs
    tl.store(out_pose + 16 * base + at, centre.to(out_pose.dtype.element_ty), mask=mask)
    tl.store(out_activation + base + lane_index(HOW), found.to(out_activation.dtype.element_ty), mask=is_output(HOW))
