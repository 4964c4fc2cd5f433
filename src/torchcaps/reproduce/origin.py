"""Which data a result really comes from."""

from functools import cache
from pathlib import Path

from torchcaps.data.sources import SOURCES
from torchcaps.data.verify import DIFFERS, verify


@cache  # the files are hundreds of megabytes
def data_title(name: str, root: Path | None) -> str:
    """A set's name; of one whose images are not the official ones, with a word that says so."""
    if name not in SOURCES:
        return name
    # smallNORB's info files say how a picture was taken, and matter to nothing that is measured.
    differs = any(status == DIFFERS for file, status in verify(name, root) if "-info" not in file)
    copy = "JPEG copy" if name == "smallnorb" else "not the official files"
    return f"{SOURCES[name].title} ({copy})" if differs else SOURCES[name].title
