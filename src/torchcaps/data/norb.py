"""smallNORB, in its own binary matrix format (``.mat``, but not MATLAB's)."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.reading import Reader, find_file, required_file
from torchcaps.data.types import DataError, ImageSet, Split
from torchcaps.data.writing import to_disk, whole_file

Camera = Literal["left", "right", "both"]
CAMERAS: dict[str, slice] = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2)}
SIDE = 96
PAIR = 2 * SIDE * SIDE
BLOCK = 256  # pairs read or written at a time
BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54
KINDS = {
    0x1E3D4C51: "floats",
    0x1E3D4C52: "a packed matrix",
    0x1E3D4C53: "doubles",
    INTEGERS: "integers",
    BYTES: "bytes",
    0x1E3D4C56: "short integers",
}
FILES = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
CLASSES = ("animal", "human", "airplane", "truck", "car")
# The numbers that the files hold. An azimuth is a multiple of 10 degrees, and even; an elevation e is 30 + 5 e degrees.
FACTORS: dict[str, Sequence[int]] = {
    "instance": range(10),
    "elevation": range(9),
    "azimuth": range(0, 36, 2),
    "lighting": range(6),
}


def load_smallnorb(folder: Path, camera: Camera = "left") -> ImageSet:
    """smallNORB; images ``[N, 1, 96, 96]`` of one camera, or ``[N, 2, 96, 96]`` of both.

    An uncompressed ``-dat.mat`` stays in its file, memory-mapped; a gzipped one is read into memory. The factors hold
    the numbers of the info file (azimuth 34 is 340 degrees), and -1 throughout where it is missing.
    """
    if camera not in CAMERAS:
        raise DataError(f"no camera {camera!r}; expected one of {', '.join(CAMERAS)}")
    train, test = (read_split(folder, prefix, CAMERAS[camera]) for prefix in FILES.values())
    return ImageSet("smallnorb", CLASSES, train, test, folder)


def read_split(folder: Path, prefix: str, cameras: slice) -> Split:
    """One split; the small files come first, so that the large one is only touched where they are right."""
    labels = read_categories(required_file(folder, f"{prefix}-cat.mat"))  # [N]
    info = find_file(folder, f"{prefix}-info.mat")
    unknown = torch.full((len(labels), len(FACTORS)), -1)  # [N, 4]
    factors = unknown if info is None else read_info(info, len(labels))  # [N, 4]
    images = read_pairs(required_file(folder, f"{prefix}-dat.mat"), cameras, len(labels))  # [N, 1 or 2, 96, 96]
    return Split(images, labels, dict(zip(FACTORS, factors.unbind(1), strict=True)))


def check_norb_file(name: str, path: Path) -> None:
    """Raise where the structure of one of the files is wrong."""
    if "-cat" in name:
        read_categories(path)
    elif "-info" in name:
        read_info(path)
    else:
        check_pairs(path)


def read_categories(path: Path) -> Tensor:
    """The class of each pair, ``[N]``."""
    with Reader(path) as reader:
        header, (count,) = read_header(reader, INTEGERS, (None,))
        labels = np.frombuffer(reader.rest(4 * count, f"the data of {count} categories"), "<i4")  # [N]
        bad = np.flatnonzero((labels < 0) | (labels >= len(CLASSES)))
        if len(bad):
            offset = header + 4 * int(bad[0])
            raise reader.wrong(offset, f"category {labels[bad[0]]}; expected 0 to {len(CLASSES) - 1}")
    return torch.from_numpy(labels.astype(np.int64))  # [N]


def read_info(path: Path, expected: int | None = None) -> Tensor:
    """The factors of each pair, ``[N, 4]`` in the order of FACTORS, -1 where they are not known."""
    with Reader(path) as reader:
        header, (count, columns) = read_header(reader, INTEGERS, (expected, len(FACTORS)))
        content = reader.rest(4 * count * columns, f"the data of {count} descriptions")
        info = np.frombuffer(content, "<i4").reshape(count, columns)  # [N, 4]
        for column, (name, values) in enumerate(FACTORS.items()):
            bad = np.flatnonzero(~np.isin(info[:, column], (-1, *values)))
            if len(bad):
                offset = header + 4 * (int(bad[0]) * columns + column)
                step = " in steps of 2" if name == "azimuth" else ""
                limits = f"expected {values[0]} to {values[-1]}{step}, or -1 where it is not known"
                raise reader.wrong(offset, f"{name} {info[bad[0], column]}; {limits}")
    return torch.from_numpy(info.astype(np.int64))  # [N, 4]


def read_pairs(path: Path, cameras: slice, expected: int) -> Tensor:
    """The images of some cameras, ``[N, 1 or 2, 96, 96]``."""
    with Reader(path) as reader:
        header, (count, *_) = read_header(reader, BYTES, (expected, 2, SIDE, SIDE))
        reader.check_last(count * PAIR, f"the data of {count} pairs")
        if not reader.gzipped:
            try:
                # Copy on write: torch warns of arrays that cannot be written, and the file stays as it is all the same.
                mapped = np.memmap(path, np.uint8, "c", header, (count, 2, SIDE, SIDE))
            except (OSError, ValueError) as error:  # a file system that cannot map, or the file has just changed
                raise DataError(f"{path}: cannot be memory-mapped: {error}") from error
            return torch.from_numpy(mapped)[:, cameras]  # [N, 1 or 2, 96, 96], a view
        blocks = [block[:, cameras].copy() for block in read_blocks(reader, count)]
    return torch.from_numpy(np.concatenate(blocks))  # [N, 1 or 2, 96, 96]


def check_pairs(path: Path) -> None:
    """The same without keeping anything."""
    with Reader(path) as reader:
        _, (count, *_) = read_header(reader, BYTES, (None, 2, SIDE, SIDE))
        reader.check_last(count * PAIR, f"the data of {count} pairs")
        if reader.gzipped:
            for _ in read_blocks(reader, count):
                pass


def read_blocks(reader: Reader, count: int) -> Iterator["np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"]:
    """Some pairs ``[n, 2, 96, 96]`` at a time."""
    for piece in reader.pieces(count * PAIR, f"the data of {count} pairs", BLOCK * PAIR):
        yield np.frombuffer(piece, np.uint8).reshape(-1, 2, SIDE, SIDE)  # [n, 2, 96, 96]
    reader.end()


def read_header(reader: Reader, kind: int, expected: tuple[int | None, ...]) -> tuple[int, tuple[int, ...]]:
    """Its size in bytes, and the dimensions: little endian, and never less than three of them are written."""
    magic, dimensions = struct.unpack("<Ii", reader.exactly(8, "the header"))
    if magic != kind:
        found = KINDS.get(magic, "no matrix of this format")
        raise reader.wrong(0, f"magic number {magic:#010x}, {found}; expected {kind:#010x}, {KINDS[kind]}")
    if dimensions != len(expected):
        raise reader.wrong(4, f"{dimensions} dimensions; expected {len(expected)}")
    written = max(3, dimensions)
    sizes: tuple[int, ...] = struct.unpack(f"<{written}i", reader.exactly(4 * written, "the header"))
    for number, (size, right) in enumerate(zip(sizes, expected, strict=False)):
        if size < 1 or (right is not None and size != right):
            hint = "" if number else ", as many as the cat file beside it has"
            size_here = "at least 1" if right is None else f"{right}{hint}"
            raise reader.wrong(8 + 4 * number, f"dimension {number + 1} is {size}; expected {size_here}")
    return 8 + 4 * written, sizes[:dimensions]


def write_smallnorb(folder: Path, train: Split, test: Split) -> None:
    """Write both splits, of images ``[N, 2, 96, 96]``, in the official format and under the official names.

    No file gets its name before all six are complete; factors that a split does not have are written as -1.
    """
    for split in (train, test):
        check_writable(split)
    with ExitStack() as files:
        for prefix, split in zip(FILES.values(), (train, test), strict=True):
            for ending, content in (("dat", pairs_of), ("cat", categories_of), ("info", info_of)):
                file = files.enter_context(whole_file(folder / f"{prefix}-{ending}.mat"))
                file.writelines(content(split))
                to_disk(file)


def pairs_of(split: Split) -> Iterator[bytes]:
    """The content of a dat file."""
    yield struct.pack("<Ii4i", BYTES, 4, len(split), 2, SIDE, SIDE)
    for start in range(0, len(split), BLOCK):
        yield split.images[start : start + BLOCK].cpu().numpy().tobytes()


def categories_of(split: Split) -> Iterator[bytes]:
    """The content of a cat file."""
    yield struct.pack("<Ii3i", INTEGERS, 1, len(split), 1, 1)
    yield split.labels.cpu().numpy().astype("<i4").tobytes()


def info_of(split: Split) -> Iterator[bytes]:
    """The content of an info file."""
    yield struct.pack("<Ii3i", INTEGERS, 2, len(split), len(FACTORS), 1)
    yield factor_table(split).numpy().astype("<i4").tobytes()


def factor_table(split: Split) -> Tensor:
    """The factors in the order of FACTORS, ``[N, 4]``."""
    unknown = torch.full((len(split),), -1)
    return torch.stack([split.factors.get(name, unknown).cpu() for name in FACTORS], 1)  # [N, 4]


def check_writable(split: Split) -> None:
    """Only what can be read again is written."""
    if split.images.shape[1:] != (2, SIDE, SIDE) or len(split) == 0:
        raise DataError(f"images are {list(split.images.shape)}; smallNORB's format holds [N, 2, {SIDE}, {SIDE}]")
    if int(split.labels.min()) < 0 or int(split.labels.max()) >= len(CLASSES):
        raise DataError(f"labels reach from {int(split.labels.min())} to {int(split.labels.max())}; expected 0 to 4")
    for column, (name, values) in zip(factor_table(split).unbind(1), FACTORS.items(), strict=True):
        bad = column[~torch.isin(column, torch.tensor((-1, *values)))]
        if len(bad):
            raise DataError(f"{name} {int(bad[0])} has no place in smallNORB's format: expected {list(values)} or -1")
