"""Ten instances of each category: which are for training, and how their proportions are drawn."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Draw: TypeAlias = Callable[[float, float], float]  # lowest, highest -> a proportion of this instance

TRAIN_INSTANCES = (4, 6, 7, 8, 9)  # as in smallNORB
TEST_INSTANCES = (0, 1, 2, 3, 5)

_MOST = 32  # proportions of one category


def proportions(seed: int, category: int, instance: int) -> Draw:
    """A function that draws this instance's proportions, one a call, always in the same order.

    The five instances of a split share out each range: one has its proportion in the lowest fifth, one in the next, and
    so on, in an order of its own for each proportion. So five instances cover a category about as well under every
    seed, and those of the other split still lie between them.
    """
    group = TRAIN_INSTANCES if instance in TRAIN_INSTANCES else TEST_INSTANCES
    random = np.random.default_rng([seed, category, group is TEST_INSTANCES, 1])
    order: NDArray[np.int64] = random.permuted(np.tile(np.arange(len(group)), (_MOST, 1)), axis=1)  # [proportion, 5]
    shares = (order + random.random(order.shape)) / len(group)  # [proportion, 5], in 0 .. 1
    own = iter(shares[:, group.index(instance)].tolist())
    return lambda lowest, highest: lowest + (highest - lowest) * float(next(own))
