"""Where the files of a set are, and whether they are the official ones."""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchcaps.data.reading import content_md5
from torchcaps.data.sources import SOURCES, Source, find_source
from torchcaps.data.types import DataError

VARIABLE = "TORCHCAPS_DATA"


def find_folder(name: str, root: Path | None = None) -> Path:
    """The folder that has all files of a set.

    A root that was given is the only place to look, else a mistyped one would train on other files than were meant;
    without it come TORCHCAPS_DATA, the cache folder, and where the system's packages put the set.
    """
    source = find_source(name)
    places = candidates(source, root)
    for folder in places:
        if not source.missing(folder):
            return folder
    looked = "\n".join(f"  {folder}: {state(source, folder)}" for folder in places)
    target = download_folder(source, root)
    download = f"`torchcaps data fetch {name}{f' --root {root}' if root else ''}` downloads it."
    raise DataError(f"{source.title} is in none of these:\n{looked}\n{download}\n{source.by_hand(target)}")


def candidates(source: Source, root: Path | None = None) -> list[Path]:
    """The folders to look in, in order."""
    if root is not None:
        return with_subfolders(source, root)
    given = os.environ.get(VARIABLE)
    places = with_subfolders(source, Path(given).expanduser()) if given else []
    return [*places, cache_folder() / source.subfolders[0], *source.system_folders]


def with_subfolders(source: Source, root: Path) -> list[Path]:
    """A root as a folder of sets and as the set's own folder; the former first, as its name says what is in it."""
    inside = [root / name for name in source.subfolders if (root / name).is_dir()]
    return [*(inside or [root / source.subfolders[0]]), root]


def download_folder(source: Source, root: Path | None = None) -> Path:
    """Where downloads go: into the set's own folder, be it the root or in it."""
    base = root or (Path(os.environ[VARIABLE]).expanduser() if os.environ.get(VARIABLE) else cache_folder())
    own = base.name in source.subfolders or source.holds_any(base)
    return base if own else base / source.subfolders[0]


def cache_folder() -> Path:
    """The user's cache folder for our data."""
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:  # whoever has the files needs no downloader to find them
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchcaps"
    return Path(pooch.os_cache("torchcaps"))


def state(source: Source, folder: Path) -> str:
    """What is wrong with a place."""
    if not folder.is_dir():
        return "no such folder"
    if not source.holds_any(folder):
        return "none of its files"
    return f"lacks {', '.join(source.missing(folder))}"


OFFICIAL = "matches the official file"
DIFFERS = "differs from the official file (structure is fine)"
UNKNOWN = "structure is fine (no official checksum is known)"
MISSING = "missing"
TOGETHER = "all together"


def verify(name: str, root: Path | None = None) -> list[tuple[str, str]]:
    """Each file of a set, and whether it is the official one, another, damaged or missing.

    Compressed files are compared by their content. Where each file is fine but some are not official, a last row says
    if they do not belong together.
    """
    source = find_source(name)
    folder = next((place for place in candidates(source, root) if not source.missing(place)), None)
    if folder is None:
        folder = next((place for place in candidates(source, root) if source.holds_any(place)), None)
    if folder is None:
        folder = find_folder(name, root)  # raises, and says where it looked
    if archive := source.archive(folder):
        return [(archive.name, archive_status(source, archive))]
    rows = []
    for file in source.files:
        path = source.find(folder, file.name)
        if path is None:
            rows.append((file.name, f"{MISSING} (optional)" if file.optional else MISSING))
        else:
            rows.append((path.name, file_status(source, file.name, file.size, file.md5, path)))
    if not source.missing(folder) and any(status in (DIFFERS, UNKNOWN) for _, status in rows):
        rows += together(source, folder)
    return rows


def file_status(source: Source, name: str, size: int, md5: str | None, path: Path) -> str:
    """What a file that is there is worth."""
    try:
        if md5 is not None and content_md5(path, size) == md5:
            return OFFICIAL
        source.check(name, path)
    except DataError as error:
        return f"damaged: {error}"
    return UNKNOWN if md5 is None else DIFFERS


def archive_status(source: Source, path: Path) -> str:
    """The same for an archive, which is compared as it is."""
    md5 = source.downloads[0].md5
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5:
                return OFFICIAL
        source.check(path.name, path)
    except (DataError, OSError) as error:
        return f"damaged: {error}"
    return UNKNOWN if md5 is None else DIFFERS


def together(source: Source, folder: Path) -> list[tuple[str, str]]:
    """A row where the files do not fit each other."""
    try:
        source.load(folder)
    except DataError as error:
        return [(TOGETHER, f"damaged: {error}")]
    return []


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
