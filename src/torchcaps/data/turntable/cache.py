"""Rendered pictures on disk: one ``.npy`` file for each split, checked before it is used."""

import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.writing import whole_file

Images = NDArray[np.uint8]


def read_images(path: Path, shape: tuple[int, ...]) -> Images | None:
    """The pictures of a file, memory-mapped; None where there is none, or it is not whole."""
    try:
        # Copy on write: torch wants memory it could write to, and the file must stay as it is.
        images: Images = np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            checksum = int.from_bytes(file.read(4), "little")
    except (OSError, ValueError, EOFError):
        return None
    if images.shape != shape or images.dtype != np.uint8 or not images.flags.c_contiguous:
        return None
    return images if zlib.crc32(images.data) == checksum else None


def write_images(path: Path, images: Images) -> None:
    """Write pictures, and behind them a checksum of four bytes, which ``np.load`` does not mind."""
    with whole_file(path) as file:
        np.save(file, images)
        file.write(zlib.crc32(images.data).to_bytes(4, "little"))
