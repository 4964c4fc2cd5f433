"""Which files are the official ones."""

import hashlib
from pathlib import Path

from torchcaps.data.locate import candidates, find_folder
from torchcaps.data.reading import content_md5
from torchcaps.data.sources import Source, find_source
from torchcaps.data.types import DataError

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
