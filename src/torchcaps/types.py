"""The values that pass between functions, layers and networks, and the shapes that they carry."""

from typing import NamedTuple

from torch import Tensor
from torch.utils import _pytree as pytree

POSE_SIDE = 4
POSE_SIZE = POSE_SIDE * POSE_SIDE
Affine = tuple[Tensor, Tensor]  # scale and shift of a pose map's channels, each [16 n]


class Capsules(NamedTuple):
    """Feature maps of capsules, what every capsule layer takes and gives.

    Channel ``16 c + d`` of ``pose`` is dimension ``d`` (a 4x4 matrix, row by row) of capsule ``c``; in channels-last
    memory the pose map therefore *is* ``[B, H, W, n, 16]``, and convolutions and routing share it without a copy.
    """

    pose: Tensor  # [B, 16 n, H, W]
    activation: Tensor  # [B, n, H, W], from 0 on


class Clusters(NamedTuple):
    """What the clustering of FRMS and FREM finds, before eq. 8 gives the clusters an activation."""

    pose: Tensor  # [..., J, D]
    coupling: Tensor  # [..., I, J], the r' of the last step 1


class Routed(NamedTuple):
    """What every routing method returns for the receptive fields it was given."""

    pose: Tensor  # [..., J, D]
    activation: Tensor  # [..., J]
    coupling: Tensor  # [..., I, J]


class Classified(NamedTuple):
    """The class capsules of a network."""

    pose: Tensor  # [B, classes, 16]
    activation: Tensor  # [B, classes]


class Scores(NamedTuple):
    """The output of a network without capsules."""

    activation: Tensor  # [B, classes], softmax of the logits
    logits: Tensor  # [B, classes]


# So that torch.export can save a program that takes or gives them; there is no public function for named tuples.
for _kind in (Capsules, Classified, Scores):
    pytree._register_namedtuple(_kind, serialized_type_name=f"torchcaps.types.{_kind.__name__}")
