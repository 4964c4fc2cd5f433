"""Image files that a user names, one by one, by their folders, or as the stereo pair LEFT,RIGHT."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.decode import EXTENSIONS, decode

CAMERAS = 2
NO_IMAGE = f"the folder has no image ({', '.join(EXTENSIONS)})"
NO_PAIR = (
    "no two files or folders that exist: the network takes stereo pairs, expected LEFT,RIGHT; "
    "for single images train with --camera left"
)
# In order, each once: what the user is shown, and the files that its channels are from.
Images = dict[Path, tuple[Path, ...]]


def find_images(paths: Sequence[Path], channels: int) -> tuple[Images, dict[Path, str]]:
    """All that is named, as images of so many channels: of two, as pairs; beside them, what cannot be used and why."""
    if channels == CAMERAS:
        return find_pairs(paths)
    files, missing = find_files(paths)
    return {file: (file,) for file in files}, missing


def find_pairs(paths: Sequence[Path]) -> tuple[Images, dict[Path, str]]:
    """Each LEFT,RIGHT: two files, or two folders in which the files of a pair have the same name."""
    pairs: Images = {}
    missing: dict[Path, str] = {}
    for path in paths:
        both = _left_and_right(path)
        if both is None:
            missing[path] = NO_PAIR
        elif not os.path.isdir(both[0]):
            pairs[path] = both
        else:
            found = [find_files([folder]) for folder in both]
            missing |= found[0][1] | found[1][1]
            left, right = (
                {file.relative_to(folder): file for file in files}
                for folder, (files, _) in zip(both, found, strict=True)
            )
            pairs |= {Path(f"{left[name]},{right[name]}"): (left[name], right[name]) for name in left if name in right}
            alone = [(left | right)[name] for name in left.keys() ^ right.keys()]
            missing |= dict.fromkeys(sorted(alone), "the other folder has no image of that name")
    return pairs, missing


def _left_and_right(path: Path) -> tuple[Path, Path] | None:
    """Names may have commas: the first one that parts two files, or two folders."""
    parts = str(path).split(",")
    for k in range(1, len(parts)):
        left, right = Path(",".join(parts[:k])), Path(",".join(parts[k:]))
        if os.path.exists(left) and os.path.exists(right) and os.path.isdir(left) == os.path.isdir(right):
            return left, right
    return None


def find_files(paths: Sequence[Path]) -> tuple[list[Path], dict[Path, str]]:
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
            missing.setdefault(path, NO_IMAGE)
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
    images: Mapping[Path, tuple[Path, ...]], size: int, channels: int, *, at_a_time: int = 200
) -> Iterator[tuple[list[Path], Tensor, dict[Path, str]]]:
    """Some at a time: the images that could be read, their pixels ``[n, C, size, size]`` uint8, and why others not."""
    for start in range(0, len(images), at_a_time):
        good: dict[Path, Tensor] = {}
        bad: dict[Path, str] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of much that does not matter here
            for name, files in islice(images.items(), start, start + at_a_time):
                parts = [decode(file, size, channels // len(files)) for file in files]
                bad |= {file: reason for file, reason in zip(files, parts, strict=True) if isinstance(reason, str)}
                pixels = [part for part in parts if isinstance(part, Tensor)]
                if len(pixels) == len(files):
                    good[name] = torch.cat(pixels)  # [C, size, size]
        none = torch.empty(0, channels, size, size, dtype=torch.uint8)
        yield list(good), torch.stack(list(good.values())) if good else none, bad
