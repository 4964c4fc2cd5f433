"""CIFAR-10, in its binary release: records of a label and the red, green and blue plane of an image."""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.reading import PIECE, Reader, find_file, required_file
from torchcaps.data.types import DataError, ImageSet, Split

RECORD = 1 + 3 * 32 * 32
FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_LIMIT = 256 << 20  # bytes; the official archive unpacks to 184 MB
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load_cifar10(folder: Path) -> ImageSet:
    """CIFAR-10 from its six files, or straight from the archive where they are not; images ``[N, 3, 32, 32]``."""
    place = batch_folder(folder)
    archive = folder / ARCHIVE
    if place is None and archive.is_file():
        batches = {name: parse_batch(content, archive, name) for name, content in archive_members(archive)}
        if lacking := [name for name in (*TRAIN, TEST) if name not in batches]:
            raise DataError(f"{archive}: no {', '.join(lacking)} in it")
    else:
        batches = {name: read_batch(required_file(place or folder, name)) for name in (*TRAIN, TEST)}
    images, labels = zip(*(batches[name] for name in TRAIN), strict=True)
    train = Split(torch.cat(images), torch.cat(labels))
    test = Split(batches[TEST][0].contiguous(), batches[TEST][1])
    return ImageSet("cifar10", CLASSES, train, test, folder)


def batch_folder(folder: Path) -> Path | None:
    """The folder itself or the one that the archive unpacks to, whichever has a batch."""
    places = (folder, folder / FOLDER)
    return next((place for place in places if any(find_file(place, name) for name in (*TRAIN, TEST))), None)


def check_cifar_file(name: str, path: Path) -> None:
    """Raise where the structure of a batch, or of the archive, is wrong."""
    if name != ARCHIVE:
        read_batch(path)
        return
    found = set()
    for member, content in archive_members(path):
        parse_batch(content, path, member)
        found.add(member)
    if lacking := {*TRAIN, TEST} - found:
        raise DataError(f"{path}: no {', '.join(sorted(lacking))} in it")


def read_batch(path: Path) -> tuple[Tensor, Tensor]:
    """Images and labels of one file, gzipped or not; it has no header that would tell its size."""
    with Reader(path, ARCHIVE_LIMIT) as reader:
        if not reader.gzipped:
            check_size(reader.limit, str(path))
        content = bytearray()
        while piece := reader.some(PIECE):
            content += piece
            if len(content) > reader.limit:
                raise reader.wrong(reader.limit, "the file is larger than all of CIFAR-10")
    check_size(len(content), str(path))
    return parse_batch(content, path)


def parse_batch(content: bytearray, path: Path, member: str = "") -> tuple[Tensor, Tensor]:
    """Images ``[N, 3, 32, 32]``, a view of the records, and labels ``[N]``."""
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)  # [N, 3073]
    bad = np.flatnonzero(records[:, 0] >= len(CLASSES))
    if len(bad):
        where = f"{path}{': ' if member else ''}{member}: byte {int(bad[0]) * RECORD}"
        raise DataError(f"{where}: label {records[bad[0], 0]}; expected 0 to {len(CLASSES) - 1}")
    tensor = torch.from_numpy(records)  # [N, 3073]
    return tensor[:, 1:].view(-1, 3, 32, 32), tensor[:, 0].long()  # [N, 3, 32, 32], [N]


def check_size(size: int, where: str) -> None:
    """A whole number of records, and not none."""
    if size == 0 or size % RECORD:
        byte = size - size % RECORD
        raise DataError(f"{where}: byte {byte}: {size} bytes are not a whole number of records of {RECORD} bytes each")


def archive_members(archive: Path) -> Iterator[tuple[str, bytearray]]:
    """The batches in the archive, one at a time and in its order.

    Nothing is unpacked to where a member's name says; only plain files with the names of batches are read at all.
    """
    seen = set()
    with Reader(archive, ARCHIVE_LIMIT) as reader:
        try:
            with tarfile.open(fileobj=Limited(reader), mode="r|") as tar:  # type: ignore[call-overload]
                for member in tar:
                    name = PurePosixPath(member.name).name
                    if not member.isreg() or name not in (*TRAIN, TEST):
                        continue
                    if name in seen:
                        raise DataError(f"{archive}: {name} is in it twice")
                    seen.add(name)
                    check_size(member.size, f"{archive}: {name}")
                    reader.check_room(member.size, name)
                    file = tar.extractfile(member)
                    assert file is not None, "a regular file has content"
                    content = bytearray(file.read())
                    if len(content) != member.size:
                        raise reader.wrong(reader.offset, f"the archive ends within {name}")
                    yield name, content
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise reader.wrong(reader.offset, f"not a whole tar archive ({error})") from error


class Limited:
    """What tarfile reads from: a reader that refuses to go past its limit, whatever the archive's headers ask for."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def read(self, count: int) -> bytes:
        if self.reader.offset > self.reader.limit:
            raise self.reader.wrong(self.reader.limit, "the archive is larger than all of CIFAR-10")
        return self.reader.some(count)
