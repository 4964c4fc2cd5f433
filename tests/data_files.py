"""Small files in the official formats, and a source that serves them, for the tests of `torchcaps.data`."""

import dataclasses
import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from torchcaps.data import cifar, norb
from torchcaps.data.sources import CIFAR10, MNIST, SMALLNORB, Download, Source, SourceFile

IDX_NAMES = tuple(file.name for file in MNIST.files)
NORB_NAMES = tuple(file.name for file in SMALLNORB.files)


def pixels(*shape):
    """Pixels that differ from place to place, and are the same in every run."""
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def idx_images(count):
    return struct.pack(">4I", 0x0803, count, 28, 28) + pixels(count, 28, 28).tobytes()


def idx_labels(count):
    return struct.pack(">2I", 0x0801, count) + bytes(number % 10 for number in range(count))


def idx_contents(train=7, test=3):
    """All four files of a set by name."""
    contents = (idx_images(train), idx_labels(train), idx_images(test), idx_labels(test))
    return dict(zip(IDX_NAMES, contents, strict=True))


def cifar_batch(count):
    labels = np.arange(count, dtype=np.uint8)[:, None] % 10
    return np.concatenate([labels, pixels(count, 3072)], 1).tobytes()


def cifar_contents(count=3):
    return {name: cifar_batch(count + number) for number, name in enumerate((*cifar.TRAIN, cifar.TEST))}


def cifar_archive(contents):
    """The batches in a tar.gz as it is published."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as tar:
        for name, content in {"readme.html": b"<html>", **contents}.items():
            member = tarfile.TarInfo(f"{cifar.FOLDER}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def norb_pairs(count):
    return struct.pack("<Ii4i", norb.BYTES, 4, count, 2, 96, 96) + pixels(count, 2, 96, 96).tobytes()


def norb_categories(count):
    return struct.pack("<Ii3i", norb.INTEGERS, 1, count, 1, 1) + (np.arange(count, dtype="<i4") % 5).tobytes()


def norb_info(count):
    rows = np.array([[n % 10, n % 9, 2 * (n % 18), n % 6] for n in range(count)], "<i4")
    return struct.pack("<Ii3i", norb.INTEGERS, 2, count, 4, 1) + rows.tobytes()


def norb_contents(train=4, test=3):
    makers = (norb_pairs, norb_categories, norb_info)
    contents = [make(count) for count in (train, test) for make in makers]
    return dict(zip(NORB_NAMES, contents, strict=True))


def put(folder: Path, contents: Mapping[str, bytes], gzipped=False):
    """Write files, each gzipped or not, into a folder that is made for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / (f"{name}.gz" if gzipped else name)
        path.write_bytes(gzip.compress(content, 1) if gzipped else content)
    return folder


def changed(content: bytes, offset: int, new: bytes) -> bytes:
    """Content with some bytes overwritten."""
    return content[:offset] + new + content[offset + len(new) :]


def bomb(start: bytes, megabytes: int) -> bytes:
    """A small gzip file whose content goes on with very many zeros."""
    return gzip.compress(start) + gzip.compress(bytes(16 << 20), 9) * (megabytes // 16)


def md5(content):
    return hashlib.md5(content).hexdigest()


def small_source(original: Source, contents: Mapping[str, bytes], mirrors=()) -> tuple[Source, dict[str, bytes]]:
    """A source with small files, and what a server of it has by name."""
    if original is CIFAR10:
        served = {cifar.ARCHIVE: cifar_archive(contents)}
    else:
        served = {f"{name}.gz": gzip.compress(content, 1, mtime=0) for name, content in contents.items()}
    source = dataclasses.replace(
        original,
        mirrors=tuple(mirrors),
        downloads=tuple(
            Download(name, len(content), md5(content), one.files)
            for (name, content), one in zip(served.items(), original.downloads, strict=True)
        ),
        files=tuple(
            SourceFile(file.name, len(contents[file.name]), md5(contents[file.name]), file.optional)
            for file in original.files
        ),
    )
    return source, served
