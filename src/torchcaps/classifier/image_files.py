"""Image files that a user names, one by one or by their folders."""

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.decode import EXTENSIONS, decode


def find_images(paths: Sequence[Path]) -> tuple[list[Path], dict[Path, str]]:
    """The files, and the images in all folders below those named; beside them, what is not there and why."""
    files: dict[Path, None] = {}  # in order, each once
    missing: dict[Path, str] = {}
    for path in paths:
        try:
            os.stat(path)
        except OSError as error:
            missing[path] = error.strerror or str(error)
            continue
        if not os.path.isdir(path):
            files[path] = None
            continue
        found = list(_images_below(path, missing))
        files |= dict.fromkeys(found)
        if not found:
            missing.setdefault(path, f"the folder has no image ({', '.join(EXTENSIONS)})")
    return list(files), missing


def _images_below(folder: Path, missing: dict[Path, str]) -> Iterator[Path]:
    def cannot_enter(error: OSError) -> None:
        missing[Path(error.filename)] = error.strerror or str(error)

    for parent, folders, names in os.walk(folder, onerror=cannot_enter):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(EXTENSIONS) and not name.startswith("."):
                yield Path(parent, name)


def read_images(
    paths: Sequence[Path], size: int, channels: int, *, at_a_time: int = 200
) -> Iterator[tuple[list[Path], Tensor, dict[Path, str]]]:
    """Some at a time: the files that could be read, their pixels ``[n, C, size, size]`` uint8, and why others not."""
    for start in range(0, len(paths), at_a_time):
        good: dict[Path, Tensor] = {}
        bad: dict[Path, str] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of much that does not matter here
            for path in paths[start : start + at_a_time]:
                pixels = decode(path, size, channels)
                if isinstance(pixels, str):
                    bad[path] = pixels
                else:
                    good[path] = pixels
        none = torch.empty(0, channels, size, size, dtype=torch.uint8)
        yield list(good), torch.stack(list(good.values())) if good else none, bad
