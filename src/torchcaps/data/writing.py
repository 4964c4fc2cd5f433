"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from torchcaps.data.types import DataError

PART = ".part"


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name beside its own, which it gets once it is complete and on the disk.

    Whatever goes wrong leaves nothing behind; a full disk and the like is a :class:`DataError`.
    """
    with part_beside(path) as part, disk_errors(path):
        with part.open("xb") as file:
            yield file
            to_disk(file)
        move(part, path)


@contextmanager
def part_beside(path: Path) -> Iterator[Path]:
    """A temporary name in the folder of a file, hence on the same disk; what has it in the end is removed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        yield part
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the system says against writing a file, in our words."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; no partial file was left") from error


def to_disk(file: BinaryIO) -> None:
    """What was written is on the disk, or the disk is full and says so now."""
    file.flush()
    os.fsync(file.fileno())


def move(part: Path, path: Path) -> None:
    """Give a complete file its name, for good."""
    os.replace(part, path)
    if os.name == "posix":  # elsewhere folders cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_leftovers(folder: Path) -> None:
    """What killed processes left; only for who holds the folder's lock."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)
