"""Data sets, splits, transforms and a batch loader, on whole tensors.

>>> from torchcaps import data
>>> turntable = data.load("turntable")  # doctest: +SKIP
>>> splits = data.make_splits(turntable)  # doctest: +SKIP
>>> loader = data.BatchLoader(splits.train, data.preset("turntable"), batch_size=50, train=True)  # doctest: +SKIP
"""

from torchcaps.data.catalog import list_sets, load
from torchcaps.data.folder import load_folder
from torchcaps.data.loader import BatchLoader
from torchcaps.data.mixing import MixedBatch, Mixing
from torchcaps.data.pipeline import Batch, Pipeline, mean_over_crops, preset
from torchcaps.data.splits import ViewpointSplits, make_splits, viewpoint_splits
from torchcaps.data.types import DataError, ImageSet, Split, Splits

__all__ = [
    "Batch",
    "BatchLoader",
    "DataError",
    "ImageSet",
    "MixedBatch",
    "Mixing",
    "Pipeline",
    "Split",
    "Splits",
    "ViewpointSplits",
    "list_sets",
    "load",
    "load_folder",
    "make_splits",
    "mean_over_crops",
    "preset",
    "viewpoint_splits",
]
