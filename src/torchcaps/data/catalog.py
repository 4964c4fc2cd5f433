"""Data sets by name."""

from pathlib import Path

from torchcaps.data.locate import find_folder
from torchcaps.data.norb import Camera, load_smallnorb
from torchcaps.data.sources import SOURCES
from torchcaps.data.turntable import load_turntable
from torchcaps.data.types import DataError, ImageSet

BUILT_IN = "turntable"


def list_sets() -> list[str]:
    """Names of all sets, the built-in one last.

    >>> list_sets()
    ['mnist', 'fashion-mnist', 'cifar10', 'smallnorb', 'turntable']
    """
    return [*SOURCES, BUILT_IN]


def load(name: str, *, root: Path | str | None = None, camera: Camera = "left") -> ImageSet:
    """A set by its name; the built-in one is rendered at first use, the others have to be there or be fetched.

    ``root`` is the set's own folder, or a folder of such folders. Without it: ``TORCHCAPS_DATA``, the cache folder,
    and where the system's packages put a set. ``camera`` is for the sets of stereo pairs.
    """
    root = None if root is None else Path(root)
    if name == BUILT_IN:
        return load_turntable(root, camera=camera)
    if name not in SOURCES:
        raise DataError(
            f"data set {name!r}: wanted one of {', '.join(list_sets())}; load_folder(path) takes a folder of images"
        )
    folder = find_folder(name, root)
    if name == "smallnorb":
        return load_smallnorb(folder, camera)
    if camera != "left":
        raise DataError(f"camera={camera!r}: {name} has one camera only; leave the option out")
    return SOURCES[name].load(folder)
