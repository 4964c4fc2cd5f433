"""The built-in data set: solid objects on a turntable, rendered by signed distance functions."""

from torchcaps.data.turntable.load import DEFAULT_PAIRS, load_turntable
from torchcaps.data.turntable.plan import FULL
from torchcaps.data.turntable.solids import CATEGORIES

__all__ = ["CATEGORIES", "DEFAULT_PAIRS", "FULL", "load_turntable"]
