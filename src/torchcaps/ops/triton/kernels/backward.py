"""The backward pass. A program walks through fields that lie a fixed stride apart. For each of them it makes the states
of all iterations again, walks the iterations backwards (one sweep each), and makes the gradients of the votes in a last
sweep, which hands them on to poses, activations and matrices at once.

What all fields share (matrices, parameters) a program adds up in a part of the workspace of its own, in order.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from torchcaps.ops.triton.kernels.adjoint import (
    Adjoint,
    Outcome,
    activation_pairs,
    first_pairs,
    pairs,
    vote_slope,
)
from torchcaps.ops.triton.kernels.cluster import cluster, coupling, difference
from torchcaps.ops.triton.kernels.elementary import (
    distance,
    distance_slope,
    is_output,
    over_elements,
    over_inputs,
    over_inputs_of_centre,
    over_outputs,
)
from torchcaps.ops.triton.kernels.field import (
    Maps,
    Sizes,
    block_at,
    field_at,
    matrix_index,
    matrix_row,
    matrix_shift,
    pose_column,
    steps,
    votes_of,
)
from torchcaps.ops.triton.kernels.forward import centre_index, lane_index, load_parameters, output_activation


class Found(NamedTuple):
    """Gradients by the parameters: those of the method, and the bandwidth's, but for a factor."""

    first: object  # [4, 4, 1, L], EM's [1, L]
    second: object  # [1, L]


class To(NamedTuple):
    """Where the gradients by a field's poses and activations go: pointers, and strides."""

    pose: object  # [4, 1, R, 1]
    activation: object  # [R, 1]
    pose_strides: object  # of channel, and of row and column inside of the field
    activation_strides: object
    weight: object  # [1, 4, R, L], of the program's part
    is_first: object  # whether there is nothing in that part yet


@triton.jit
def through_activation(field, states, by_centre, by_activation, parameters, inverse_bandwidth, HOW: tl.constexpr):
    """From the outputs' gradients to the adjoint of the last state, and that of beta and beta0."""
    last: tl.constexpr = HOW.iterations - 1
    a = output_activation(field, states, parameters, inverse_bandwidth, HOW)
    score = tl.where(is_output(HOW), a * (by_activation - over_outputs(a * by_activation)), 0.0)
    outcome = Outcome(score, parameters.first * states[last].centre)
    by_target = tl.zeros([4, 4, HOW.rows, HOW.lanes], tl.float32)
    by_offset = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        votes = votes_of(field, block, HOW)
        r = coupling(votes, block, states, last, inverse_bandwidth, HOW)
        _, pull = activation_pairs(votes, block, r, outcome, parameters, HOW)
        by_offset += pull
        by_target -= pull[None, None, :, :] * distance_slope(votes - outcome.target, HOW.distance)
    by_target = over_inputs_of_centre(by_target)
    adjoint = Adjoint(by_centre + by_target * parameters.first, score, by_centre, score)
    return outcome, adjoint, Found(by_target * states[last].centre, over_inputs(by_offset))


@triton.jit
def settle(state, t: tl.constexpr, by_centre, by_variance, by_logit, parameters, found, HOW: tl.constexpr):
    """EM: from the gradient by the logit of iteration t to its adjoint, and to those of beta_u and beta_a."""
    by_logit = by_logit * HOW.inverse_temperatures[t]
    by_variance -= (0.5 * by_logit * state.mass)[None, None, :, :] / state.variance
    by_variance = tl.where(state.variance > HOW.variance_floor, by_variance, 0.0)
    cost = 16 * parameters.first + 0.5 * over_elements(tl.log(state.variance))
    found = Found(found.first - 16 * by_logit * state.mass, found.second + by_logit)
    return Adjoint(by_centre, by_logit, by_variance, -by_logit * cost), found


@triton.jit
def before(field, states, adjoints, t: tl.constexpr, outcome, parameters, found, inverse_bandwidth, HOW: tl.constexpr):
    """The adjoint of iteration t - 1 from those of t and after."""
    last: tl.constexpr = HOW.iterations - 1
    by_centre = tl.zeros([4, 4, HOW.rows, HOW.lanes], tl.float32)
    by_precision = by_centre
    by_prior = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        votes = votes_of(field, block, HOW)
        by_raw = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
        if HOW.method == "frms":
            for back in tl.static_range(last - t):
                after = pairs(
                    votes, block, states, adjoints, last - back, by_raw, outcome, parameters, inverse_bandwidth, HOW
                )
                by_raw = after.by_raw
        of = pairs(votes, block, states, adjoints, t, by_raw, outcome, parameters, inverse_bandwidth, HOW)
        pull = of.pull[None, None, :, :]
        by_centre -= pull * vote_slope(votes, states[t - 1], HOW)
        by_prior += of.by_prior
        if HOW.method == "em":
            z = difference(votes, states[t - 1], HOW)
            by_precision += pull * z * z
    kept = (states[t].inverse == 0)[None, None, :, :]  # then the gradient passes on
    by_centre = over_inputs_of_centre(by_centre) + tl.where(kept, adjoints[last - t].centre, 0.0)
    by_prior = over_inputs(by_prior)
    if HOW.method == "em":
        state = states[t - 1]
        precision = 1 / state.variance
        by_variance = -precision * (over_inputs_of_centre(by_precision) * precision + 0.5 * by_prior[None, None, :, :])
        by_variance += tl.where(kept, adjoints[last - t].variance, 0.0)
        by_logit = by_prior * tl.sigmoid(-state.logit)
        return settle(state, t - 1, by_centre, by_variance, by_logit, parameters, found, HOW)
    else:
        count = field.sizes.places * HOW.inputs  # pi_j is a mean; exp(log r' - log pi_j) is as much larger
        return Adjoint(by_centre, by_prior / count, by_centre, by_prior), found


@triton.jit
def last_sweep(field, states, adjoints, outcome, parameters, inverse_bandwidth, to, HOW: tl.constexpr):
    """Gradients of the votes, and so of poses, activations and matrices; returns the sum of pull times distance."""
    last: tl.constexpr = HOW.iterations - 1
    by_bandwidth = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        votes = votes_of(field, block, HOW)
        share, by_activation = first_pairs(votes, block, states, adjoints, outcome, parameters, HOW)
        by_votes = mean_slope(votes, share, states[0], adjoints[last], HOW)
        by_raw = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
        for back in tl.static_range(last):
            of = pairs(votes, block, states, adjoints, last - back, by_raw, outcome, parameters, inverse_bandwidth, HOW)
            earlier = states[last - back - 1]
            by_raw = of.by_raw
            by_activation += of.by_activation
            by_votes += mean_slope(votes, of.share, states[last - back], adjoints[back], HOW)
            by_votes += of.pull[None, None, :, :] * vote_slope(votes, earlier, HOW)
            if HOW.method != "em":
                by_bandwidth += of.pull * distance(votes - earlier.centre, HOW.distance)
        if HOW.method != "em":
            r = coupling(votes, block, states, last, inverse_bandwidth, HOW)
            _, pull = activation_pairs(votes, block, r, outcome, parameters, HOW)
            by_votes += pull[None, None, :, :] * distance_slope(votes - outcome.target, HOW.distance)
        hand_on(field, block, tl.where(block.pair[None, None, :, :], by_votes, 0.0), to, HOW)
        by_activation = over_outputs(tl.where(block.pair, by_activation, 0.0))
        at = to.activation + shift_of(field, block, to.activation_strides, 1)
        tl.store(at, by_activation.to(at.dtype.element_ty), mask=block.inside)
    return over_inputs(by_bandwidth)


@triton.jit
def mean_slope(votes, share, state, adjoint, HOW: tl.constexpr):
    """Gradient by the votes through the mean (and EM's variance) of an iteration: ``[4, 4, R, L]``."""
    if HOW.method == "em":
        return share[None, None, :, :] * (adjoint.centre + 2 * adjoint.variance * difference(votes, state, HOW))
    else:
        return share[None, None, :, :] * adjoint.centre


@triton.jit
def shift_of(field, block, strides, size: tl.constexpr):
    """From the field's first capsules to those of a block, whose channels are ``size`` each."""
    down, right = block.place // field.sizes.field_width, block.place % field.sizes.field_width
    return size * block.capsule * strides[0] + down * strides[1] + right * strides[2]


@triton.jit
def hand_on(field, block, by_votes, to, HOW: tl.constexpr):
    """The gradients by poses, which are written, and by matrices, which are added to the program's part."""
    matrices = field.sizes.matrices * HOW.outputs
    is_first = to.is_first & (block.place == 0) if HOW.shared else to.is_first
    mask = block.pair[None, None, :, :]
    old = (block.pair & unless(is_first, HOW))[None, None, :, :]
    for b in tl.static_range(4):
        by_pose = tl.sum(tl.sum(by_votes * matrix_row(field, block, b, HOW), 1), 2)[:, None, :, None]  # [4, 1, R, 1]
        at = to.pose + (shift_of(field, block, to.pose_strides, 16) + b * to.pose_strides[0])
        tl.store(at, by_pose.to(at.dtype.element_ty), mask=block.inside[None, None, :, :])
        by_matrix = tl.sum(by_votes * pose_column(field, block, b, HOW), 0)[None, :, :, :]  # [1, 4, R, L]
        at = to.weight + (matrix_shift(block, HOW) + 4 * b * matrices)
        so_far = tl.load(at, mask=old, other=0.0)
        tl.store(at, so_far + by_matrix, mask=mask)
    if HOW.shared:
        tl.debug_barrier()  # the next place adds to the same matrices


@triton.jit
def unless(condition, HOW: tl.constexpr):
    """Its opposite, for each lane: ``[1, L]``."""
    return (tl.arange(0, HOW.lanes) < tl.where(condition, 0, HOW.lanes))[None, :]


@triton.jit
def add_to(pointer, value, mask, old):
    """Add to what a program has summed up so far, which is nothing where it is not ``old``."""
    tl.store(pointer, tl.load(pointer, mask=mask & old, other=0.0) + value, mask=mask)


@triton.jit
def backward(
    pose,
    activation,
    weight,
    offset,
    first,
    second,
    bandwidth,
    by_out_pose,
    by_out_activation,
    by_pose,
    by_activation,
    by_weight,
    by_first,
    by_second,
    by_bandwidth,
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
    fields,
    by_pose_b,
    by_pose_y,
    by_pose_x,
    by_pose_c,
    by_pose_h,
    by_pose_w,
    by_activation_b,
    by_activation_y,
    by_activation_x,
    by_activation_c,
    by_activation_h,
    by_activation_w,
    HOW: tl.constexpr,
):
    """Gradients by poses and activations, for each field (b, y, x) by channel, row and column inside of it (c, h, w);
    parts of those by matrices ``[programs, 16, rows, J]``, parameters, and bandwidth ``[programs, J]``.
    """
    maps = Maps(pose, activation, weight, offset)
    strides = (pose_b, pose_c, pose_h, pose_w), (activation_b, activation_c, activation_h, activation_w)
    window = (stride_h, stride_w), (padding_h, padding_w)
    sizes = Sizes(height, width, out_height, out_width, *strides, field_width, places, *window, matrices)
    program = tl.program_id(0)
    parameters = load_parameters(first, second, HOW)
    inverse_bandwidth = 1 / tl.load(bandwidth)
    at, mask = centre_index(HOW)
    rows = tl.arange(0, HOW.rows)
    part = program.to(tl.int64) * HOW.outputs
    weight_part = by_weight + 16 * part * matrices + matrix_index(matrices, HOW)
    pose_channel = 16 * rows[None, None, :, None] + 4 * tl.arange(0, 4)[:, None, None, None]
    for number in range(program, fields, tl.num_programs(0)):
        field = field_at(number, maps, sizes, HOW)
        states = cluster(field, parameters, inverse_bandwidth, HOW)
        out = tl.cast(number, tl.int64) * HOW.outputs
        by_centre = tl.load(by_out_pose + 16 * out + at, mask=mask, other=0.0).to(tl.float32)
        by_a = tl.load(by_out_activation + out + lane_index(HOW), mask=is_output(HOW), other=0.0).to(tl.float32)
        if HOW.method == "em":
            state = states[HOW.iterations - 1]
            a = tl.sigmoid(state.logit)
            none = tl.zeros([1, HOW.lanes], tl.float32)
            outcome = Outcome(none, none)
            adjoint, found = settle(
                state,
                HOW.iterations - 1,
                by_centre,
                tl.zeros([4, 4, 1, HOW.lanes], tl.float32),
                by_a * a * (1 - a),
                parameters,
                Found(none, none),
                HOW,
            )
        else:
            outcome, adjoint, found = through_activation(
                field, states, by_centre, by_a, parameters, inverse_bandwidth, HOW
            )
        adjoints = (adjoint,)
        for back in tl.static_range(HOW.iterations - 1):
            adjoint, found = before(
                field,
                states,
                adjoints,
                HOW.iterations - 1 - back,
                outcome,
                parameters,
                found,
                inverse_bandwidth,
                HOW,
            )
            adjoints = adjoints + (adjoint,)  # noqa: RUF005 - the compiler knows no unpacking
        x = number % out_width
        y = number // out_width % out_height
        image = tl.cast(number // (out_width * out_height), tl.int64)
        to = To(
            by_pose + (image * by_pose_b + y * by_pose_y + x * by_pose_x) + pose_channel * by_pose_c,
            by_activation
            + (image * by_activation_b + y * by_activation_y + x * by_activation_x)
            + rows[:, None] * by_activation_c,
            (by_pose_c, by_pose_h, by_pose_w),
            (by_activation_c, by_activation_h, by_activation_w),
            weight_part,
            number == program,
        )
        pulled = last_sweep(field, states, adjoints, outcome, parameters, inverse_bandwidth, to, HOW)
        old = unless(number == program, HOW)
        lane = part + lane_index(HOW)
        add_to(by_second + lane, found.second, is_output(HOW), old)
        if HOW.method == "em":
            add_to(by_first + lane, found.first, is_output(HOW), old)
        else:
            add_to(by_first + 16 * part + at, found.first, mask, old[None, None, :, :])
            add_to(by_bandwidth + lane, -pulled * inverse_bandwidth, is_output(HOW), old)
        tl.debug_barrier()  # the next field adds to the same sums
