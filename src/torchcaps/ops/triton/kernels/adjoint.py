"""Gradients of a block of pairs in one iteration, from the gradients by what the iteration left."""

from typing import NamedTuple

import triton
import triton.language as tl

from torchcaps.ops.triton.kernels.cluster import difference, logits, raw_coupling, share_of_mean
from torchcaps.ops.triton.kernels.elementary import (
    INFINITY,
    TINY,
    density,
    density_slope,
    distance,
    distance_slope,
    log_density_slope,
    log_softmax,
    over_elements,
    over_outputs,
)


class Adjoint(NamedTuple):
    """Gradients by the state of an iteration. Tuples of them begin with the last one."""

    centre: object  # [4, 4, 1, L]
    prior: object  # [1, L]: by one coupling that pi_j is the mean of, or by log pi_j
    variance: object  # EM, [4, 4, 1, L]
    mass: object  # EM, [1, L]


class Outcome(NamedTuple):
    """Eq. 8: the gradient by its sums ``[1, L]``, and beta_j v_j ``[4, 4, 1, L]``."""

    score: object
    target: object


class Pairs(NamedTuple):
    """Gradients of a block's pairs in one iteration, ``[R, L]`` each."""

    share: object  # of the vote in the mean
    by_activation: object
    pull: object  # by the distance to the centre before
    by_prior: object  # by that of the iteration before
    by_raw: object  # FRMS: by r, from this iteration and those after it


@triton.jit
def activation_pairs(votes, block, r, outcome, parameters, HOW: tl.constexpr):
    """Eq. 8: gradient by the activation, but for that of the coupling; and the pull to the target."""
    y = (distance(votes - outcome.target, HOW.distance) + parameters.second) * (1 / HOW.activation_bandwidth)
    by_activation = r * outcome.score * density(y, HOW.activation_kernel)
    pull = r * outcome.score * block.activation * density_slope(y, HOW.activation_kernel)
    return by_activation, pull * (1 / HOW.activation_bandwidth)


@triton.jit
def vote_slope(votes, state, HOW: tl.constexpr):
    """Derivative of the distance to an iteration's centre by the votes: ``[4, 4, R, L]``."""
    if HOW.method == "em":
        return 2 * difference(votes, state, HOW) / state.variance
    else:
        return distance_slope(votes - state.centre, HOW.distance)


@triton.jit
def mean_pairs(votes, block, log_weight, state, adjoint, HOW: tl.constexpr):
    """The weighted mean (and EM's variance): the votes' shares, the gradients by weight and activation."""
    z = difference(votes, state, HOW)
    along = z * adjoint.centre
    if HOW.method == "em":
        along += (z * z - state.variance) * adjoint.variance
    share, factor = share_of_mean(log_weight, state, block)
    along = over_elements(along)
    return share, factor * along, share * along


@triton.jit
def first_pairs(votes, block, states, adjoints, outcome, parameters, HOW: tl.constexpr):
    """Iteration 0: the votes' shares, and the gradient by the activation."""
    last: tl.constexpr = HOW.iterations - 1
    none = tl.zeros([HOW.rows, HOW.lanes], tl.float32)
    share, by_activation, _ = mean_pairs(votes, block, none, states[0], adjoints[last], HOW)
    if HOW.method == "em":
        by_activation += adjoints[last].mass * (1 / HOW.outputs)
    elif last == 0:
        by_activation += activation_pairs(votes, block, none + 1 / HOW.outputs, outcome, parameters, HOW)[0]
    return share, by_activation


@triton.jit
def pairs(
    votes, block, states, adjoints, t: tl.constexpr, by_raw, outcome, parameters, inverse_bandwidth, HOW: tl.constexpr
):
    """Iteration t, not the first one. ``by_raw`` is that of the iterations after it."""
    last: tl.constexpr = HOW.iterations - 1
    state, before, adjoint = states[t], states[t - 1], adjoints[last - t]
    logit, shift = logits(votes, block, states, t, inverse_bandwidth, HOW)
    log_coupling = log_softmax(logit, HOW)
    r = tl.exp(log_coupling)
    share, by_activation, by_weight = mean_pairs(votes, block, log_coupling + shift, state, adjoint, HOW)
    by_log_coupling = by_weight
    if HOW.method == "em":
        by_activation += r * adjoint.mass
        by_log_coupling += r * adjoint.mass * block.activation
    elif t == last:
        of_density, _ = activation_pairs(votes, block, r, outcome, parameters, HOW)
        by_activation += of_density
        by_log_coupling += of_density * block.activation
    elif HOW.method == "frem":
        if HOW.plain:
            empty = state.prior == -INFINITY
            part = tl.exp(
                log_coupling - tl.where(empty, 0.0, state.prior)
            )  # of the sum of couplings, but for a constant
            by_log_coupling += tl.where(empty, 0.0, part) * adjoint.prior
        else:
            by_log_coupling += r * adjoint.prior
    by_log_coupling = tl.where(block.pair, by_log_coupling, 0.0)
    by_logit = by_log_coupling - r * over_outputs(by_log_coupling)
    by_logit = tl.where(block.pair & (logit > -INFINITY), by_logit, 0.0)
    if HOW.method == "em":
        return Pairs(share, by_activation, -0.5 * by_logit, by_logit, by_raw)
    else:
        x = distance(votes - before.centre, HOW.distance) * inverse_bandwidth
        if HOW.method == "frms":
            if HOW.plain:
                raw, _ = raw_coupling(votes, block, states, t, inverse_bandwidth, HOW)
                by_logit = by_logit / tl.where(raw >= TINY, raw, 1.0)
            by_raw += by_logit
            gain = HOW.step * by_raw
            by_activation += gain * density(x, HOW.kernel)
            pull = gain * block.activation * density_slope(x, HOW.kernel)
            if HOW.kernel == "gaussian":  # its slope is a part of the weight
                pull -= 0.5 * by_weight
            return Pairs(share, by_activation, pull * inverse_bandwidth, by_logit, by_raw)
        elif HOW.plain:
            pull = by_logit * log_density_slope(x, HOW.kernel)
            return Pairs(share, by_activation, pull * inverse_bandwidth, by_logit, by_raw)
        else:
            pull = by_logit * before.prior * density_slope(x, HOW.kernel)
            return Pairs(share, by_activation, pull * inverse_bandwidth, by_logit * density(x, HOW.kernel), by_raw)
