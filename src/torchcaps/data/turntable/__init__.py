"""The built-in data set: solid objects on a turntable, rendered by signed distance functions."""

from torchcaps.data.turntable.load import DEFAULT_PAIRS, load_turntable
from torchcaps.data.turntable.masks import object_masks
from torchcaps.data.turntable.objects import CATEGORIES
from torchcaps.data.turntable.plan import FULL

__all__ = ["CATEGORIES", "DEFAULT_PAIRS", "FULL", "load_turntable", "object_masks"]
