"""``torchcaps bench``: what routing costs, measured on the machine at hand."""

from torchcaps.bench.command import bench

__all__ = ["bench"]
