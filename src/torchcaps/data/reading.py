"""Files of unknown goodness: gzipped or not, read front to back, and never further than their header promised."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from torchcaps.data.types import DataError

GZIP_START = b"\x1f\x8b"
GZIP_LIMIT = 512 << 20  # bytes; the largest official file, of smallNORB, unpacks to 448 MB
DEFLATE_RATIO = 1032  # deflate cannot shrink anything further than that
PIECE = 1 << 20


class Reader:
    """The content of a file, uncompressed; every failure is a :class:`DataError` with the file and the byte."""

    def __init__(self, path: Path, limit: int = GZIP_LIMIT) -> None:
        self.path = path
        self.offset = 0
        # A pipe would wait for a writer for ever, a folder fails with an error that helps nobody.
        if not path.is_file():
            raise DataError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        try:
            self.file: BinaryIO = path.open("rb")
            size = os.fstat(self.file.fileno()).st_size
            self.gzipped = self.file.read(2) == GZIP_START
            self.file.seek(0)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        self.limit = min(limit, size * DEFLATE_RATIO) if self.gzipped else size
        self.content: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=self.file) if self.gzipped else self.file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def wrong(self, offset: int, message: str) -> DataError:
        """The error for a byte of the content."""
        return DataError(f"{self.path}: byte {offset}{' (uncompressed)' if self.gzipped else ''}: {message}")

    def some(self, count: int) -> bytes:
        """Up to ``count`` of the next bytes; none at the end, whose gzip checksum is then known to be right."""
        try:
            piece = self.content.read(count)
        except (OSError, EOFError, zlib.error) as error:
            raise self.wrong(self.offset, f"the file is damaged or cut short ({error})") from error
        self.offset += len(piece)
        return piece

    def exactly(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes."""
        return b"".join(self.pieces(count, what))

    def pieces(self, count: int, what: str, piece: int = PIECE) -> Iterator[bytes]:
        """The next ``count`` bytes, so many at a time: a header that lies costs no more memory than the file holds."""
        self.check_room(count, what)
        end = self.offset + count
        while self.offset < end:
            expected = min(piece, end - self.offset)
            part = self.some(expected)
            if len(part) < expected:
                raise self.wrong(self.offset, f"the file ends within {what}, which should reach to byte {end}")
            yield part

    def rest(self, count: int, what: str) -> bytearray:
        """The next ``count`` bytes, which must be the last: writable, so that tensors can stand on them."""
        self.check_last(count, what)
        content = bytearray()
        for piece in self.pieces(count, what):
            content += piece
        self.end()
        return content

    def check_room(self, count: int, what: str) -> None:
        """Before anything is read or mapped: the next ``count`` bytes can be there."""
        end = self.offset + count
        if end > self.limit:
            reason = f"can hold no more than {self.limit} bytes" if self.gzipped else "ends here"
            offset = self.offset if self.gzipped else self.limit
            raise self.wrong(offset, f"the file {reason}, but {what} should reach to byte {end}")

    def check_last(self, count: int, what: str) -> None:
        """The same, and nothing follows them; of a gzipped file that is only known at its end."""
        self.check_room(count, what)
        end = self.offset + count
        if not self.gzipped and end < self.limit:
            raise self.wrong(end, f"{self.limit - end} bytes too many: {what} should end here")

    def end(self) -> None:
        """Nothing follows."""
        offset = self.offset
        if self.some(1):
            raise self.wrong(offset, "the file should end here, but goes on")


def spellings(name: str) -> list[str]:
    """The names under which a file is found: as published, unpacked, and with the dot that some unpackers write."""
    names = [name, name.replace("-idx", ".idx")]
    return list(dict.fromkeys(names + [f"{name}.gz" for name in names]))


def find_file(folder: Path, name: str) -> Path | None:
    """A file under any of its spellings, uncompressed rather than not."""
    return next((folder / spelling for spelling in spellings(name) if (folder / spelling).is_file()), None)


def required_file(folder: Path, name: str) -> Path:
    """The same, where it has to be there."""
    path = find_file(folder, name)
    if path is None:
        raise DataError(f"{folder}: no {' or '.join(spellings(name))}")
    return path


def content_md5(path: Path, size: int) -> str | None:
    """The md5 of the uncompressed content, or None where its size is another; never reads further than one byte on."""
    digest, left = hashlib.md5(usedforsecurity=False), size
    with Reader(path, limit=size + 1) as reader:
        if not reader.gzipped and reader.limit != size:
            return None
        while piece := reader.some(min(PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                return None
            digest.update(piece)
    return None if left else digest.hexdigest()
