"""Data sets by name."""

import os
from pathlib import Path

from torchcaps.data.locate import VARIABLE, find_folder
from torchcaps.data.norb import Camera, load_smallnorb
from torchcaps.data.sources import SOURCES
from torchcaps.data.turntable import DEFAULT_PAIRS, load_turntable
from torchcaps.data.types import DataError, ImageSet

BUILT_IN = "turntable"


def list_sets() -> list[str]:
    """Names of all sets, the built-in one last.

    >>> list_sets()
    ['mnist', 'fashion-mnist', 'cifar10', 'smallnorb', 'turntable']
    """
    return [*SOURCES, BUILT_IN]


def load(name: str, *, root: Path | str | None = None, camera: Camera = "left", full: bool = False) -> ImageSet:
    """A set by its name; the built-in one is rendered at first use, the others have to be there or be fetched.

    ``root`` is the set's own folder, or a folder of such folders. Without it: ``TORCHCAPS_DATA``, the cache folder,
    and where the system's packages put a set. ``camera`` is for the sets of stereo pairs, ``full`` for turntable: all
    24,300 + 24,300 pairs instead of 3,000 + 3,000.
    """
    root = None if root is None else Path(root)
    if name == BUILT_IN:
        return load_turntable(turntable_folder(root), camera=camera, pairs="full" if full else DEFAULT_PAIRS)
    if name not in SOURCES:
        raise DataError(
            f"data set {name!r}: expected one of {', '.join(list_sets())}; load_folder(path) takes a folder of images"
        )
    if full:
        raise DataError(f"full=True is for {BUILT_IN}: {name} is always whole")
    folder = find_folder(name, root)
    if name == "smallnorb":
        return load_smallnorb(folder, camera)
    if camera != "left":
        raise DataError(f"camera={camera!r}: {name} has one camera only; leave the option out")
    return SOURCES[name].load(folder)


def turntable_folder(root: Path | None) -> Path | None:
    """Where the built-in set's pictures are kept: a root is its own folder or a folder of sets, as for the others."""
    base = root or (Path(os.environ[VARIABLE]).expanduser() if os.environ.get(VARIABLE) else None)
    return base if base is None or base.name == BUILT_IN else base / BUILT_IN
