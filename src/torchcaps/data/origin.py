"""Whether a set's files are those that were published."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchcaps.data.sources import SOURCES
from torchcaps.data.verify import DIFFERS, verify


class Unofficial(NamedTuple):
    """What is not official about a set; nothing where all is."""

    files: tuple[str, ...] = ()
    note: str = ""  # to be said wherever an error on these files is given


@cache  # the files are hundreds of megabytes
def unofficial(name: str, root: Path | None = None) -> Unofficial:
    """The files of a set, as it is found there, whose images or labels differ from the official ones.

    smallNORB's info files say how a picture was taken, which no error depends on: they are left out. A set that was
    never published, like turntable or a folder of images, has nothing to differ from.
    """
    rows = verify(name, root) if name in SOURCES else []
    files = tuple(file for file, status in rows if status == DIFFERS and "-info" not in file)
    if not files:
        return Unofficial()
    copy = any("-dat" in file for file in files)  # smallNORB is around as JPEG images that were packed again
    return Unofficial(files, "JPEG copy" if copy else "not the official files")
