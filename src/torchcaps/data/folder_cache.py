"""Decoded images, kept so that each file is decoded once."""

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.decode import decode
from torchcaps.data.types import DataError
from torchcaps.data.writing import whole_file
from torchcaps.errors import require

VERSION = 2  # of the decoding: raise it when the same file would give other pixels


@dataclass(frozen=True)
class Decoded:
    images: Tensor  # [n, C, size, size] uint8, of the files that could be decoded, in their order
    bad: dict[int, str]  # place among the files, reason
    note: str = ""


def decode_cached(
    root: Path, files: Sequence[Path], *, size: int, channels: int | None, cache: Path, progress: bool
) -> Decoded:
    """Decode the files, or take them from the cache where nothing has changed since."""
    name = _digest(str(root.resolve()), size, channels)
    fingerprint = _digest(VERSION, [(str(path.relative_to(root)), *_state(path)) for path in files])
    found = _load(cache, name, fingerprint)
    if found is not None:
        return found
    decoded = decode_all(files, size=size, channels=channels, progress=progress)
    try:
        _save(cache, name, fingerprint, decoded)
    except (DataError, OSError) as error:
        # A full disk or a read-only home costs time at the next start, nothing else.
        return Decoded(decoded.images, decoded.bad, f"decoded images are not cached: {error}")
    return decoded


def decode_all(files: Sequence[Path], *, size: int, channels: int | None, progress: bool) -> Decoded:
    """Decode the files; without ``channels`` one if every image is grey, else three."""
    require("rich", "data", "reading a folder of images")
    from rich.console import Console  # here: a network is loaded without it
    from rich.progress import track

    images = torch.empty(len(files), channels or 3, size, size, dtype=torch.uint8)
    bad: dict[int, str] = {}
    console = Console(stderr=True)
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = pool.map(lambda path: decode(path, size, channels or 3), files)
            hidden = not (progress and console.is_terminal)
            for place, pixels in enumerate(track(results, "decoding", len(files), console=console, disable=hidden)):
                if isinstance(pixels, str):
                    bad[place] = pixels
                else:
                    images[place - len(bad)] = pixels
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the images that are left
    images = images[: len(files) - len(bad)]
    if channels is None and _is_grey(images):
        images = images[:, :1].clone()
    return Decoded(images, bad)


def _is_grey(images: Tensor) -> bool:
    return bool((images[:, 0] == images[:, 1]).all() and (images[:, 0] == images[:, 2]).all())


def _state(path: Path) -> tuple[int, int, int]:
    """What changes when a file does; the mode too, because an unreadable file may have become readable."""
    try:
        stat = path.stat()
    except OSError:  # a link that leads nowhere
        return 0, 0, 0
    return stat.st_size, stat.st_mtime_ns, stat.st_mode


def _load(cache: Path, name: str, fingerprint: str) -> Decoded | None:
    try:
        entry = json.loads((cache / f"{name}.json").read_text())
        if entry["fingerprint"] != fingerprint:
            return None
        # Copy on write: the pages stay in the file, and torch has no reason to warn of read-only memory.
        array = np.load(cache / _array_name(name, fingerprint), mmap_mode="c", allow_pickle=False)
        if array.dtype != np.uint8 or list(array.shape) != entry["shape"]:
            return None
        bad = {int(place): str(reason) for place, reason in entry["bad"].items()}
        return Decoded(torch.from_numpy(array), bad)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):  # missing or damaged: decode anew
        return None


def _save(cache: Path, name: str, fingerprint: str, decoded: Decoded) -> None:
    array_name = _array_name(name, fingerprint)
    with whole_file(cache / array_name) as file:
        np.save(file, decoded.images.numpy())
    entry = {"fingerprint": fingerprint, "shape": list(decoded.images.shape), "bad": decoded.bad}
    with whole_file(cache / f"{name}.json") as file:
        file.write(json.dumps(entry).encode())
    for old in cache.glob(f"{name}-*.npy"):
        if old.name != array_name:
            with suppress(OSError):
                old.unlink()


def _array_name(name: str, fingerprint: str) -> str:
    return f"{name}-{fingerprint}.npy"


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
