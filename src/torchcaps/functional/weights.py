"""The numbers of routing that underflow: couplings, and the weights of a mean.

Both are carried as logarithms, so that a softmax or a Gaussian that underflows still leaves the *ratios* of the weights
exact. ``-inf`` stands for a weight of exactly zero.
"""

import math
from typing import Literal

import torch
from torch import Tensor

Normalize = Literal["softmax", "sum"]  # how step 1 makes r' of r: softmax(r), or r / sum r = softmax(log r)
NORMALIZATIONS = ("softmax", "sum")

# A capsule whose activation is below this is switched off: the gradient by it, 1 / a of a pose, would leave float32.
SMALLEST_ACTIVATION = 2.0**-100
# Its weight is 0 whatever its logarithm is, but its activation still gets a gradient, which grows with
# exp(log weight - top). The cap keeps that finite; it never touches a result.
_MOST_ABOVE_TOP = 40.0


def safe_log(x: Tensor) -> Tensor:
    """log x; -inf with gradient 0 where x is not positive (or so small that 1 / x would overflow)."""
    positive = x >= torch.finfo(x.dtype).tiny
    return torch.where(positive, torch.where(positive, x, 1.0).log(), -torch.inf)


def switched_off(activation: Tensor) -> Tensor:
    """Activations with 0 for those below 0 (where :func:`check_not_negative` could not see them), gradient as at 0."""
    return activation - activation.detach().clamp(max=0)


def log_softmax_outputs(logit: Tensor) -> Tensor:
    """log of the softmax over the outputs j of ``[..., I, J]``; a row that is -inf throughout becomes uniform."""
    empty = (logit == -torch.inf).all(-1, keepdim=True)  # [..., I, 1]
    return torch.log_softmax(logit.masked_fill(empty, 0.0), dim=-1)


def log_mean_inputs(log_x: Tensor) -> Tensor:
    """log of the mean of x over the inputs i, ``[..., I, J] -> [..., 1, J]``."""
    top = log_x.detach().amax(-2, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    return safe_log((log_x - top).exp().mean(-2, keepdim=True)) + top


def relative_weights(log_weight: Tensor, activation: Tensor) -> Tensor:
    """exp(log weight) a_i up to a factor for each output j that makes the largest one 1: it cancels in a mean.

    Shapes: ``[..., I, J]``, ``[..., I]`` -> ``[..., I, J]``.
    """
    numbers = torch.finfo(activation.dtype)
    off = activation.detach() < max(SMALLEST_ACTIVATION, numbers.tiny)  # [..., I]
    a = activation - activation.detach().masked_fill(~off, 0.0)  # 0 where off, with the gradient that it has there
    a, off = a.unsqueeze(-1), off.unsqueeze(-1)  # [..., I, 1]
    top = (log_weight.detach() + a.detach().log()).masked_fill(off, -torch.inf).amax(-2, keepdim=True)  # [..., 1, J]
    top = top.masked_fill(top == -torch.inf, 0.0)
    above = log_weight - top  # of a capsule that is on, at most -log a
    most = min(_MOST_ABOVE_TOP, math.log(numbers.max) - 1)
    return torch.where(off, above.clamp(max=most), above).exp() * a


def weighted_mean(samples: Tensor, weight: Tensor, otherwise: Tensor) -> Tensor:
    """sum_i w_ij u_ij / sum_i w_ij, or ``otherwise`` where an output's weights are all zero.

    Shapes: ``[..., I, J, D]``, ``[..., I, J]``, ``[..., J, D]`` -> ``[..., J, D]``.
    """
    total = weight.sum(-2, keepdim=True)  # [..., 1, J]
    share = weight / torch.where(total == 0, 1.0, total)  # exactly 1 for a single sample, which is then the mean
    mean = (share.unsqueeze(-1) * samples).sum(-3)
    return torch.where(total.mT == 0, otherwise, mean)  # a NaN that was given is not hidden
