"""Floating-point operations of routing, by formula.

Counted for one receptive field with I input and J output capsules of D = 16 dimensions and T iterations, with the
default options (Epanechnikov kernel, l1, softmax, bandwidth 1). An addition, subtraction, multiplication, division,
absolute value, exponential and logarithm count as one each, a multiply-add as two, a sum of n terms as n; comparisons
(the maximum in a softmax) do not count. Per pair (i, j), and per output j:

| step | pairs | outputs |
|---|---|---|
| votes, a 4x4 product: 16 elements of 4 multiply-adds | 128 | |
| mean, T times: weight r' a, its sum, 16 multiply-adds; 16 divisions | 1 + 1 + 32 | 16 |
| softmax over j, T - 1 times (the first coupling is 1 / J): subtract, exp, sum, divide | 4 | |
| FREM, T - 1 times: distance; 1 - d, times pi; sum of r', over I | 48 + 2 + 1 | 1 |
| FRMS, T - 1 times: distance; 1 - d, times a, added to r | 48 + 3 | |
| activation (eq. 8): distance to beta v, + beta_0, 1 - x, times r' a, sum; beta v and softmax | 48 + 4 | 16 + 4 |
| EM, T times: variance, 16 of (subtract, square, weight, sum); 16 divisions | 64 | 16 |
| EM, T times: cost, 16 of (log, halve, + beta_u, sum), times mass; logit | | 64 + 1 + 2 |
| EM, T - 1 times: log p, 16 of (subtract, square, times precision, sum), halved, + bias | 64 + 2 | |
| EM, T - 1 times: precision; log(2 pi variance) summed and halved; log sigmoid, bias | | 16 + 48 + 1 + 3 + 1 |
| EM, at the end: sigmoid | | 3 |

It is the work that the mathematics asks for, not what a core does: votes made twice, or lanes that stay empty, earn
nothing. A gathered field moves no numbers through arithmetic and counts nothing either.
"""

from typing import NamedTuple

from torchcaps.bench.workloads import LayerShape
from torchcaps.types import POSE_SIZE

DISTANCE = 3 * POSE_SIZE


class Flops(NamedTuple):
    """Operations by step."""

    votes: int
    means: int  # and EM's variances
    distances: int  # and EM's log densities
    coupling: int
    activation: int

    @property
    def total(self) -> int:
        return sum(self)


def field_flops(method: str, inputs: int, outputs: int, iterations: int = 2) -> Flops:
    """Operations to route one receptive field forward.

    >>> field_flops("frem", inputs=16, outputs=8).total
    39208
    """
    pairs, again = inputs * outputs, iterations - 1
    votes = pairs * 2 * 4 * POSE_SIZE
    means = iterations * (pairs * (2 + 2 * POSE_SIZE) + outputs * POSE_SIZE)
    if method == "em":
        means += iterations * (pairs * 4 * POSE_SIZE + outputs * POSE_SIZE)
        densities = again * (pairs * (4 * POSE_SIZE + 2) + outputs * (POSE_SIZE + 3 * POSE_SIZE + 1))
        costs = iterations * outputs * (4 * POSE_SIZE + 1 + 2) + again * outputs * (3 + 1)
        return Flops(votes, means, densities, again * pairs * 4, costs + outputs * 3)
    distances = again * pairs * DISTANCE
    update = again * (pairs * 3 + outputs) if method == "frem" else again * pairs * 3
    activation = pairs * (DISTANCE + 4) + outputs * (POSE_SIZE + 4)
    return Flops(votes, means, distances, again * pairs * 4 + update, activation)


def layer_flops(method: str, layer: LayerShape, batch: int, iterations: int = 2) -> int:
    """Operations of a capsule layer, forward."""
    return batch * layer.fields * field_flops(method, layer.inputs, layer.outputs, iterations).total


def layer_bytes(layer: LayerShape, batch: int) -> int:
    """Bytes that must move at least: every float32 of the maps in and out, and of the matrices, once."""
    maps = layer.in_capsules * layer.height * layer.width + layer.fields * layer.outputs
    return 4 * (batch * maps * (POSE_SIZE + 1) + layer.inputs * layer.outputs * POSE_SIZE)
