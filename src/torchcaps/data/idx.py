"""MNIST and Fashion-MNIST, in the IDX format."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.reading import Reader, required_file
from torchcaps.data.types import DataError, ImageSet, Split

SIDE = 28
UBYTE = 0x08  # the type code for unsigned bytes
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}
# Both sets have the same file names: their labels tell one from the other.
TRAIN_LABELS_MD5 = {"mnist": "a25bea736e30d166cdddb491f175f624", "fashion-mnist": "9018921c3c673c538a1fc5bad174d6f9"}


def load_idx_set(name: str, folder: Path) -> ImageSet:
    """MNIST or Fashion-MNIST; images ``[N, 1, 28, 28]``."""
    splits = {}
    for split, (images_name, labels_name) in FILES.items():
        labels = read_labels(required_file(folder, labels_name), name)  # [N]
        images = read_images(required_file(folder, images_name), len(labels))  # [N, 1, 28, 28]
        splits[split] = Split(images, labels)
    return ImageSet(name, CLASSES[name], splits["train"], splits["test"], folder)


def check_idx_file(name: str, path: Path) -> None:
    """Raise where the structure of one of the files is wrong."""
    if "labels" in name:
        read_labels(path)
    else:
        read_images(path)


def read_images(path: Path, expected: int | None = None) -> Tensor:
    """The images of a file; where ``expected`` is given, so many."""
    with Reader(path) as reader:
        count, *sides = read_dimensions(reader, 3)
        for offset, side in zip((8, 12), sides, strict=True):
            if side != SIDE:
                raise reader.wrong(offset, f"images of {sides[0]}x{sides[1]} pixels; expected {SIDE}x{SIDE}")
        if expected is not None and count != expected:
            raise reader.wrong(4, f"{count} images, but the file of labels beside it has {expected}")
        pixels = reader.rest(count * SIDE * SIDE, f"the data of {count} images")
    return torch.frombuffer(pixels, dtype=torch.uint8).view(count, 1, SIDE, SIDE)  # [N, 1, 28, 28]


def read_labels(path: Path, set_name: str | None = None) -> Tensor:
    """The labels of a file; where a set's name is given, not those of another."""
    with Reader(path) as reader:
        (count,) = read_dimensions(reader, 1)
        content = reader.rest(count, f"the data of {count} labels")
        labels = np.frombuffer(content, np.uint8)  # [N]
        bad = np.flatnonzero(labels > 9)
        if len(bad):
            raise reader.wrong(8 + int(bad[0]), f"label {labels[bad[0]]}; expected 0 to 9")
    if set_name is not None:
        digest = hashlib.md5(struct.pack(">2I", 0x0801, count) + content, usedforsecurity=False).hexdigest()
        for other, md5 in TRAIN_LABELS_MD5.items():
            if digest == md5 and other != set_name:
                raise DataError(f"{path}: these are the files of {other}, not of {set_name}")
    return torch.from_numpy(labels).long()  # [N]


def read_dimensions(reader: Reader, expected: int) -> tuple[int, ...]:
    """The header: two zeros, a type code, the number of dimensions, and each of them; big endian."""
    zero, kind, dimensions = struct.unpack(">HBB", reader.exactly(4, "the header"))
    if zero != 0:
        raise reader.wrong(0, f"not an IDX file: it starts with {zero:#06x}, not with two zero bytes")
    if kind != UBYTE:
        raise reader.wrong(2, f"type code {kind:#04x}; expected {UBYTE:#04x}, unsigned bytes")
    if dimensions != expected:
        raise reader.wrong(3, f"{dimensions} dimensions; expected {expected}")
    sizes: tuple[int, ...] = struct.unpack(f">{expected}I", reader.exactly(4 * expected, "the header"))
    if sizes[0] == 0:
        raise reader.wrong(4, "the file holds nothing: its first dimension is 0")
    return sizes
