"""The published sets: their files, where they come from, and how to check and load them.

Checksums are md5, which is what the sets' authors and the packages that carry them publish: they tell a whole download
from a broken one. Those of uncompressed files hold whoever compressed them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from torchcaps.data import cifar, idx, norb
from torchcaps.data.reading import find_file
from torchcaps.data.types import DataError, ImageSet


@dataclass(frozen=True)
class SourceFile:
    """A file that a loader reads, uncompressed."""

    name: str
    size: int
    md5: str | None  # None: not known
    optional: bool = False


@dataclass(frozen=True)
class Download:
    """A file as the servers have it, and the loader's files in it."""

    name: str
    size: int | None  # None: not known
    md5: str | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """All there is to know of a set without reading it."""

    name: str
    title: str
    classes: tuple[str, ...]
    counts: tuple[int, int]  # of images, for training and test
    licence: str
    homepage: str
    mirrors: tuple[str, ...]  # folders, each ending in a slash, the first to be tried first
    downloads: tuple[Download, ...]
    files: tuple[SourceFile, ...]
    load: Callable[[Path], ImageSet]
    check: Callable[[str, Path], None]  # by name of file, raises DataError where its structure is wrong
    unpack: Literal["keep", "gunzip", "untar"]  # what becomes of a download
    subfolders: tuple[str, ...]  # where it lies in a folder of sets, the first for what we fetch
    system_folders: tuple[Path, ...] = ()  # where packages of the system put it

    def find(self, folder: Path, name: str) -> Path | None:
        """One of its files, under any spelling."""
        places = (folder, folder / cifar.FOLDER) if self.unpack == "untar" else (folder,)
        return next((path for place in places if (path := find_file(place, name))), None)

    def archive(self, folder: Path) -> Path | None:
        """The archive that all its files can be read from, where there is one and it has not been unpacked."""
        path = folder / self.downloads[0].name
        unpacked = any(self.find(folder, file.name) for file in self.files)
        return path if self.unpack == "untar" and path.is_file() and not unpacked else None

    def missing(self, folder: Path) -> list[str]:
        """The files that the loader needs and does not find."""
        if self.archive(folder):
            return []
        return [file.name for file in self.files if not file.optional and not self.find(folder, file.name)]

    def holds_any(self, folder: Path) -> bool:
        """Whether at least one of its files is there."""
        return bool(self.archive(folder) or any(self.find(folder, file.name) for file in self.files))

    def by_hand(self, folder: Path) -> str:
        """What to do where nothing can be downloaded."""
        rows = []
        for download in self.downloads:
            size = "" if download.size is None else f"  {download.size:,} bytes"
            rows.append(f"  {download.name}  md5 {download.md5 or 'not known'}{size}")
        places = [f"  {mirror}" for mirror in self.mirrors]
        kept = "as they are, or unpacked" if self.unpack == "untar" else "gzipped or not"
        return "\n".join(
            [
                f"To do it by hand, put these files into {folder}, {kept}:",
                *rows,
                "They are at",
                *places,
                f"and `torchcaps data verify {self.name} --root {folder}` tells whether they are the official ones.",
            ]
        )


def idx_source(
    name: str,
    title: str,
    licence: str,
    homepage: str,
    mirrors: tuple[str, ...],
    files: dict[str, tuple[int, str, str]],
    subfolders: tuple[str, ...],
    system_folders: tuple[Path, ...] = (),
) -> Source:
    """MNIST and what has its format; of each file: the size and md5 of the download, and the md5 of its content."""
    pixels = {"train-images-idx3-ubyte": 60_000, "t10k-images-idx3-ubyte": 10_000}
    labels = {"train-labels-idx1-ubyte": 60_000, "t10k-labels-idx1-ubyte": 10_000}
    sizes = {key: 16 + 784 * count for key, count in pixels.items()} | {key: 8 + n for key, n in labels.items()}
    return Source(
        name=name,
        title=title,
        classes=idx.CLASSES[name],
        counts=(60_000, 10_000),
        licence=licence,
        homepage=homepage,
        mirrors=mirrors,
        downloads=tuple(Download(f"{key}.gz", size, md5, (key,)) for key, (size, md5, _) in files.items()),
        files=tuple(SourceFile(key, sizes[key], content) for key, (_, _, content) in files.items()),
        load=partial(idx.load_idx_set, name),
        check=idx.check_idx_file,
        unpack="keep",
        subfolders=subfolders,
        system_folders=system_folders,
    )


MNIST = idx_source(
    "mnist",
    "MNIST",
    "CC BY-SA 3.0 (Y. LeCun, C. Cortes), made from databases of NIST",
    "http://yann.lecun.com/exdb/mnist/",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    {
        "train-images-idx3-ubyte": (
            9_912_422,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        "train-labels-idx1-ubyte": (28_881, "d53e105ee54ea40749a09fcbcd1e9432", idx.TRAIN_LABELS_MD5["mnist"]),
        "t10k-images-idx3-ubyte": (1_648_877, "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
        "t10k-labels-idx1-ubyte": (4_542, "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    },
    subfolders=("mnist", "MNIST", "MNIST/raw"),
)

FASHION_MNIST = idx_source(
    "fashion-mnist",
    "Fashion-MNIST",
    "MIT (Zalando SE)",
    "https://github.com/zalandoresearch/fashion-mnist",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte": (
            26_421_880,
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        ),
        "train-labels-idx1-ubyte": (29_515, "25c81989df183df01b3e8a0aad5dffbe", idx.TRAIN_LABELS_MD5["fashion-mnist"]),
        "t10k-images-idx3-ubyte": (4_422_102, "bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
        "t10k-labels-idx1-ubyte": (5_148, "bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
    },
    subfolders=("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
    system_folders=(Path("/usr/share/datasets/fashion-mnist"),),
)

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    classes=cifar.CLASSES,
    counts=(50_000, 10_000),
    licence="none stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    ),
    downloads=(Download(cifar.ARCHIVE, 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530", (*cifar.TRAIN, cifar.TEST)),),
    files=tuple(
        SourceFile(name, 10_000 * cifar.RECORD, md5)
        for name, md5 in {
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        }.items()
    ),
    load=cifar.load_cifar10,
    check=cifar.check_cifar_file,
    unpack="untar",
    subfolders=("cifar10", "cifar-10", "CIFAR10"),
)

# The md5 of the .gz and of its content.
SMALLNORB_FILES = {
    "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat": (
        "66054832f9accfe74a0f4c36a75bc0a2",
        "8138a0902307b32dfa0025a36dfa45ec",
    ),
    "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat": (
        "23c8b86101fbf0904a000b43d3ed2fd9",
        "fd5120d3f770ad57ebe620eb61a0b633",
    ),
    "smallnorb-5x46789x9x18x6x2x96x96-training-info.mat": (
        "51dee1210a742582ff607dfd94e332e3",
        "19faee774120001fc7e17980d6960451",
    ),
    "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat": (
        "e4ad715691ed5a3a5f138751a4ceb071",
        "e9920b7f7b2869a8f1a12e945b2c166c",
    ),
    "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat": (
        "5aa791cd7e6016cf957ce9bdb93b8603",
        "fd5120d3f770ad57ebe620eb61a0b633",
    ),
    "smallnorb-5x01235x9x18x6x2x96x96-testing-info.mat": (
        "a9454f3864d7fd4bb3ea7fc3eb84924e",
        "7c5b871cc69dcadec1bf6a18141f5edc",
    ),
}
SMALLNORB_SIZES = {"dat": 24 + 24_300 * norb.PAIR, "cat": 20 + 24_300 * 4, "info": 20 + 24_300 * 16}

SMALLNORB = Source(
    name="smallnorb",
    title="smallNORB",
    classes=norb.CLASSES,
    counts=(24_300, 24_300),
    licence="for research only, must not be sold; cite LeCun, Huang and Bottou, CVPR 2004",
    homepage="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
    mirrors=(
        "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        "https://cs.nyu.edu/~yann/data/norb-v1.0-small/",
    ),
    downloads=tuple(Download(f"{name}.gz", None, md5, (name,)) for name, (md5, _) in SMALLNORB_FILES.items()),
    files=tuple(
        SourceFile(name, SMALLNORB_SIZES[name.split("-")[-1].removesuffix(".mat")], md5, optional="-info" in name)
        for name, (_, md5) in SMALLNORB_FILES.items()
    ),
    load=norb.load_smallnorb,
    check=norb.check_norb_file,
    unpack="gunzip",  # a plain file can be memory-mapped
    subfolders=("smallnorb", "smallNORB", "small_norb", "norb"),
)

SOURCES = {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, SMALLNORB)}


def find_source(name: str) -> Source:
    """A set by its name."""
    if name not in SOURCES:
        raise DataError(f"no published set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]
