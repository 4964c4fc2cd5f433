"""All iterations of FREM, FRMS and EM for one field. Each is a sweep over its blocks, which makes the votes anew.

The coupling of iteration t follows from what the iterations before left for each output capsule (:class:`State`), so
that no pair of capsules is ever stored. The largest weight of an output capsule is found as the sweep goes, and what
was summed before is scaled down to it.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from torchcaps.ops.triton.kernels.elementary import (
    INFINITY,
    density,
    distance,
    log_density,
    log_mean_shift,
    log_sigmoid,
    log_softmax,
    over_elements,
    over_inputs,
    over_inputs_of_centre,
    safe_log,
)
from torchcaps.ops.triton.kernels.field import block_at, steps, votes_of


class State(NamedTuple):
    """What an iteration leaves for those after it, and for the backward pass."""

    centre: object  # [4, 4, 1, L], as everything of EM is but mass and logit
    prior: object  # [1, L]: pi_j of FREM ("sum": its logarithm), or all but the distance in EM's log-likelihood
    top: object  # [1, L]: the largest log(weight a)
    inverse: object  # [1, L]: 1 / sum of weights relative to it, or 0 where the centre was kept
    residual: object  # EM: what rounding the mean to the centre left out
    variance: object
    mass: object
    logit: object


class Sums(NamedTuple):
    """Of a field's activations, ``[1, 1]`` each."""

    total: object
    of_on: object  # of the capsules that have a vote
    largest: object
    on: object  # their number


MOST_ABOVE_TOP: tl.constexpr = tl.constexpr(40.0)  # as in torchcaps.functional.weights
LOG_TWO_PI: tl.constexpr = tl.constexpr(1.8378770664093453)


@triton.jit
def sum_activations(field, HOW: tl.constexpr):
    """The weights of the first mean, added up before it, so that a single vote has the share 1 exactly."""
    total = tl.zeros([HOW.rows, 1], tl.float32)
    of_on, largest, on = total, total, total
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        total += block.activation
        of_on += tl.where(block.on, block.activation, 0.0)
        largest = tl.where(block.on, tl.maximum(largest, block.activation), largest)
        on += block.on.to(tl.float32)
    return Sums(over_inputs(total), over_inputs(of_on), tl.max(largest, 0)[None, :], over_inputs(on))


@triton.jit
def difference(votes, state, HOW: tl.constexpr):
    """Votes from the centre of an iteration: ``[4, 4, R, L]``."""
    if HOW.method == "em":
        return (votes - state.centre) - state.residual
    else:
        return votes - state.centre


@triton.jit
def raw_coupling(votes, block, states, t: tl.constexpr, inverse_bandwidth, HOW: tl.constexpr):
    """FRMS: r of iteration t, and log -k' at the distance from the centre before: ``[R, L]`` each."""
    r = tl.full([HOW.rows, HOW.lanes], 1 / HOW.outputs, tl.float32)
    shift = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    for s in tl.static_range(t):
        x = distance(votes - states[s].centre, HOW.distance) * inverse_bandwidth
        r += HOW.step * block.activation * density(x, HOW.kernel)
        if s == t - 1:
            shift = log_mean_shift(x, HOW.kernel)
    return r, shift


@triton.jit
def logits(votes, block, states, t: tl.constexpr, inverse_bandwidth, HOW: tl.constexpr):
    """What the softmax of iteration t is taken of, and what its logarithm lacks to a weight: ``[R, L]`` each."""
    none = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    if t == 0:
        return none, none
    elif HOW.method == "frms":
        r, shift = raw_coupling(votes, block, states, t, inverse_bandwidth, HOW)
        return safe_log(r) if HOW.plain else r, shift
    elif HOW.method == "em":
        z = difference(votes, states[t - 1], HOW)
        return states[t - 1].prior - 0.5 * over_elements(z * z / states[t - 1].variance), none
    else:
        x = distance(votes - states[t - 1].centre, HOW.distance) * inverse_bandwidth
        if HOW.plain:
            return states[t - 1].prior + log_density(x, HOW.kernel), none
        else:
            return states[t - 1].prior * density(x, HOW.kernel), none


@triton.jit
def share_of_mean(log_weight, state, block):
    """The shares of the votes in an iteration's mean, and these by the activation: ``[R, L]`` each.

    The logarithm of a share is rounded just as in :func:`mean`: where weights are far from 1, shares that are rounded
    otherwise would not add up to 1. A capsule that is off has no part in top, and the cap keeps its gradient finite.
    """
    log_activation = tl.log(tl.where(block.on, block.activation, 1.0))
    above = (log_weight + log_activation) - state.top
    above = tl.where(block.on, above, tl.minimum(above, MOST_ABOVE_TOP))
    share = tl.where(block.on, tl.exp(above), 0.0)
    return share * state.inverse, tl.exp(above - log_activation) * state.inverse


@triton.jit
def rescale(top, newer):
    """What sums relative to ``top`` are multiplied by to be relative to ``newer``, which is not smaller."""
    return tl.exp(top - tl.where(newer == -INFINITY, 0.0, newer))


@triton.jit
def mean(field, states, t: tl.constexpr, sums, inverse_bandwidth, HOW: tl.constexpr):
    """Iteration t up to its centre, not corrected yet; EM's state is completed by :func:`spread`."""
    before = states[t - 1]
    top = tl.full([HOW.rows, HOW.lanes], -INFINITY, tl.float32)
    total = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    centre = tl.zeros([4, 4, HOW.rows, HOW.lanes], tl.float32)
    # of the couplings: FREM's for pi ("sum": relative to the largest of them), EM's times a for the mass
    coupled, most = total, top
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        votes = votes_of(field, block, HOW)
        logit, shift = logits(votes, block, states, t, inverse_bandwidth, HOW)
        log_coupling = log_softmax(logit, HOW)
        if HOW.method == "em":
            coupled += tl.exp(log_coupling) * block.activation
        elif HOW.method == "frem":
            counted = tl.where(block.present, log_coupling, -INFINITY)
            if HOW.plain:
                newer = tl.maximum(most, counted)
                coupled = coupled * rescale(most, newer) + rescale(counted, newer)
                most = newer
            else:
                coupled += tl.exp(counted)
        log_weight = log_coupling + shift
        log_activation = tl.log(tl.where(block.on, block.activation, 1.0))
        newer = tl.maximum(top, tl.where(block.on, log_weight + log_activation, -INFINITY))
        scale = rescale(top, newer)
        # the largest weighs exactly 1: where it has all the weight, its vote is the mean to the last bit
        weight = tl.where(block.on, rescale(log_weight + log_activation, newer), 0.0)
        total = total * scale + weight
        centre = centre * scale[None, None, :, :] + weight[None, None, :, :] * votes
        top = newer
    largest = tl.max(top, 0)[None, :]
    scale = rescale(top, largest)
    total = over_inputs(total * scale)
    centre = over_inputs_of_centre(centre * scale[None, None, :, :])
    found = total > 0
    inverse = tl.where(found, 1 / tl.where(found, total, 1.0), 0.0)
    # A single vote is its own mean: multiplied and divided by its weight, it would lie beside the kink of l1.
    moves = found & (sums.on != 1)
    centre = tl.where(moves[None, None, :, :], centre * inverse[None, None, :, :], before.centre)
    if HOW.method == "frem":
        if HOW.plain:
            most_of_all = tl.max(most, 0)[None, :]
            coupled = safe_log(over_inputs(coupled * rescale(most, most_of_all)))
            coupled += tl.where(most_of_all == -INFINITY, 0.0, most_of_all) - tl.log(
                field.sizes.places * HOW.inputs * 1.0
            )
        else:
            coupled = over_inputs(coupled) / (field.sizes.places * HOW.inputs)
    else:
        coupled = over_inputs(coupled)
    largest = tl.where(largest == -INFINITY, 0.0, largest)
    return State(centre, coupled, largest, inverse, centre, centre, coupled, coupled)


@triton.jit
def first_mean(field, sums, HOW: tl.constexpr):
    """Iteration 0: equal couplings, so that the weights are the activations."""
    total = tl.where(sums.of_on > 0, sums.of_on, 1.0)
    centre = tl.zeros([4, 4, HOW.rows, HOW.lanes], tl.float32)
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        share = tl.div_rn(tl.where(block.on, block.activation, 0.0), total)
        centre += share[None, None, :, :] * votes_of(field, block, HOW)
    centre = over_inputs_of_centre(centre)
    uniform = tl.full([1, HOW.lanes], 1 / HOW.outputs, tl.float32)
    none = tl.zeros([1, HOW.lanes], tl.float32)
    prior = tl.log(uniform) if HOW.plain else uniform
    top = tl.log(tl.where(sums.on > 0, sums.largest, 1.0)) + none
    inverse = sums.largest / total + none
    return State(centre, prior, top, inverse, centre, centre, sums.total * uniform, none)


@triton.jit
def spread(field, states, state, t: tl.constexpr, parameters, HOW: tl.constexpr):
    """EM: variances and logit of iteration t, whose centre is known but for its rounding.

    Where one of many large votes has nearly all weight, their deviation is below the rounding of their mean: the
    variance is about the mean itself, the centre as near to it as it gets.
    """
    drift = tl.zeros([4, 4, HOW.rows, HOW.lanes], tl.float32)
    square = drift
    for step in range(steps(field, HOW)):
        block = block_at(field, step, HOW)
        votes = votes_of(field, block, HOW)
        if t == 0:
            log_coupling = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
        else:
            logit, _ = logits(votes, block, states, t, 1.0, HOW)
            log_coupling = log_softmax(logit, HOW)
        share, _ = share_of_mean(log_coupling, state, block)
        share = share[None, None, :, :]
        z = votes - state.centre
        drift += share * z
        square += share * z * z
    drift, square = over_inputs_of_centre(drift), over_inputs_of_centre(square)
    centre = state.centre + drift
    residual = drift - (centre - state.centre)
    kept = (state.inverse == 0)[None, None, :, :]
    before = tl.full([4, 4, 1, HOW.lanes], 1.0, tl.float32)
    if t > 0:
        before = states[t - 1].variance
    variance = tl.where(
        kept, before, tl.maximum(square - drift * drift, HOW.variance_floor, propagate_nan=tl.PropagateNan.ALL)
    )
    log_variances = over_elements(tl.log(variance))
    cost = (16 * parameters.first + 0.5 * log_variances) * state.mass
    logit = HOW.inverse_temperatures[t] * (parameters.second - cost)
    prior = log_sigmoid(logit) - 0.5 * (log_variances + 16 * LOG_TWO_PI)
    return State(centre, prior, state.top, state.inverse, residual, variance, state.mass, logit)


@triton.jit
def cluster(field, parameters, inverse_bandwidth, HOW: tl.constexpr):
    """The states of all iterations, and the sums of the field's activations."""
    sums = sum_activations(field, HOW)
    state = first_mean(field, sums, HOW)
    if HOW.method == "em":
        state = spread(field, (), state, 0, parameters, HOW)
    states = (state,)
    for t in tl.static_range(1, HOW.iterations):
        state = mean(field, states, t, sums, inverse_bandwidth, HOW)
        if HOW.method == "em":
            state = spread(field, states, state, t, parameters, HOW)
        states = states + (state,)  # noqa: RUF005 - the compiler knows no unpacking
    return states


@triton.jit
def coupling(votes, block, states, t: tl.constexpr, inverse_bandwidth, HOW: tl.constexpr):
    """r' of iteration t, ``[R, L]``."""
    logit, _ = logits(votes, block, states, t, inverse_bandwidth, HOW)
    return tl.exp(log_softmax(logit, HOW))
