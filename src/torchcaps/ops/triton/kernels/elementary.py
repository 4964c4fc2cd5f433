"""Kernels k(x), distances, and the softmax over output capsules, as in torchcaps.functional."""

import triton
import triton.language as tl

INFINITY: tl.constexpr = tl.constexpr(float("inf"))
TINY: tl.constexpr = tl.constexpr(2.0**-126)  # the smallest normal number


@triton.jit
def safe_log(x):
    """log x, and -inf where x is not positive."""
    positive = x >= TINY
    return tl.where(positive, tl.log(tl.where(positive, x, 1.0)), -INFINITY)


@triton.jit
def density(x, KERNEL: tl.constexpr):
    """k(x)"""
    if KERNEL == "gaussian":
        return tl.exp(-0.5 * x)
    elif KERNEL == "clipped":
        return tl.where(x < 1, 1 - x, 0.0)
    else:
        return 1 - x


@triton.jit
def density_slope(x, KERNEL: tl.constexpr):
    """k'(x)"""
    if KERNEL == "gaussian":
        return -0.5 * tl.exp(-0.5 * x)
    elif KERNEL == "clipped":
        return tl.where(x < 1, -1.0, 0.0)
    else:
        return tl.full(x.shape, -1.0, tl.float32)


@triton.jit
def log_density(x, KERNEL: tl.constexpr):
    """log k(x)"""
    if KERNEL == "gaussian":
        return -0.5 * x
    else:
        return safe_log(1 - x)


@triton.jit
def log_density_slope(x, KERNEL: tl.constexpr):
    """The derivative of log k(x); 0 where that is -inf."""
    if KERNEL == "gaussian":
        return tl.full(x.shape, -0.5, tl.float32)
    else:
        positive = 1 - x >= TINY
        return tl.where(positive, -1 / tl.where(positive, 1 - x, 1.0), 0.0)


@triton.jit
def log_mean_shift(x, KERNEL: tl.constexpr):
    """log -k'(x), but for a constant: the weight that mean shift gives a sample."""
    if KERNEL == "gaussian":
        return -0.5 * x
    elif KERNEL == "clipped":
        return tl.where(x < 1, 0.0, -INFINITY)
    else:
        return tl.zeros_like(x)


@triton.jit
def over_elements(x):
    """Sum over the elements of a matrix: ``[4, 4, R, L] -> [R, L]``, within a thread."""
    return tl.sum(tl.sum(x, 0), 0)


@triton.jit
def over_inputs(x):
    """Sum over input capsules: ``[R, L] -> [1, L]``."""
    return tl.sum(x, 0)[None, :]


@triton.jit
def over_inputs_of_centre(x):
    """Sum over input capsules: ``[4, 4, R, L] -> [4, 4, 1, L]``."""
    return tl.sum(x, 2)[:, :, None, :]


@triton.jit
def over_outputs(x):
    """Sum over output capsules: ``[R, L] -> [R, 1]``."""
    return tl.sum(x, 1)[:, None]


@triton.jit
def distance(difference, DISTANCE: tl.constexpr):
    """l1 or l2 of differences: ``[4, 4, R, L] -> [R, L]``."""
    if DISTANCE == "l1":
        return over_elements(tl.abs(difference))
    else:
        return over_elements(difference * difference)


@triton.jit
def distance_slope(difference, DISTANCE: tl.constexpr):
    """Its derivative by the differences; that of l1 is 0 at 0."""
    if DISTANCE == "l1":
        return (difference > 0).to(tl.float32) - (difference < 0).to(tl.float32)
    else:
        return 2 * difference


@triton.jit
def is_output(HOW: tl.constexpr):
    """Whether a lane is an output capsule: ``[1, L]``."""
    return (tl.arange(0, HOW.lanes) < HOW.outputs)[None, :]


@triton.jit
def log_softmax(logit, HOW: tl.constexpr):
    """log of the softmax over the output capsules; a row that is -inf throughout becomes uniform."""
    logit = tl.where(is_output(HOW), logit, -INFINITY)
    top = tl.max(logit, 1)[:, None]
    empty = top == -INFINITY
    logit = tl.where(empty & is_output(HOW), 0.0, logit) - tl.where(empty, 0.0, top)
    return logit - tl.log(over_outputs(tl.exp(logit)))


@triton.jit
def softmax(logit, HOW: tl.constexpr):
    """The softmax over the output capsules of finite numbers."""
    logit = tl.where(is_output(HOW), logit, -INFINITY)
    power = tl.exp(logit - tl.max(logit, 1)[:, None])
    return power / over_outputs(power)


@triton.jit
def log_sigmoid(x):
    """log of 1 / (1 + exp(-x))"""
    return tl.minimum(x, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))
