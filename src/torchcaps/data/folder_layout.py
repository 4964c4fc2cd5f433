"""Which files of an image folder are of which class and split; nothing is opened yet."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchcaps.data.decode import EXTENSIONS, has_image_name
from torchcaps.data.types import DataError

SPLIT_NAMES = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
CLUTTER = {"thumbs.db", "desktop.ini", "__macosx"}  # what desktops leave; names with a dot in front are too

LAYOUT = "expected one subfolder per class, or train/ (and val/, test/) of those"


@dataclass(frozen=True)
class Layout:
    """All images in a fixed order, with the class and the split of each."""

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]
    splits: tuple[str, ...]  # "train", "validation" or "test"; all "train" where the folder has no splits
    strays: tuple[Path, ...]  # images that lie beside the class folders
    others: tuple[Path, ...]  # files that are no images, by their names


def scan(root: Path) -> Layout:
    """Look through an image folder; raises :class:`DataError` where it has no usable form."""
    try:
        return _scan(root)
    except PermissionError as error:
        raise DataError(f"{error.filename or root} may not be read: no permission; change it with chmod") from error
    except OSError as error:
        raise DataError(f"{error.filename or root} cannot be read: {error.strerror or error}") from error


def _scan(root: Path) -> Layout:
    if not root.exists():
        raise DataError(f"{root} does not exist; {LAYOUT}")
    if not root.is_dir():
        raise DataError(f"{root} is a file, not a folder; {LAYOUT}")
    parts = _split_folders(root)
    levels = dict.fromkeys([root, *parts.values()])
    beside = [path for level in levels for path in _entries(level) if not path.is_dir()]
    strays = [path for path in beside if has_image_name(path)]
    others = [path for path in beside if not has_image_name(path)]
    classes_of = {split: [path.name for path in _subfolders(folder)] for split, folder in parts.items()}
    classes = classes_of["train"]
    _check_classes(root, parts["train"], classes_of)

    files, labels, splits = [], [], []
    for split, folder in parts.items():
        for label, name in enumerate(classes):
            found = list(_files(folder / name))
            of_class = [path for path in found if has_image_name(path)]
            if not of_class:
                what = f"has no image ({', '.join(EXTENSIONS)})" if found else "is empty"
                raise DataError(f"class folder {folder / name} {what}: put images in, or remove it")
            others += [path for path in found if not has_image_name(path)]
            files += of_class
            labels += [label] * len(of_class)
            splits += [split] * len(of_class)
    return Layout(tuple(classes), tuple(files), tuple(labels), tuple(splits), tuple(strays), tuple(others))


def _split_folders(root: Path) -> dict[str, Path]:
    """The folders that hold class folders, by split; the root alone where it holds them itself."""
    folders = _subfolders(root)
    named = [folder for folder in folders if folder.name.casefold() in SPLIT_NAMES]
    others = [folder.name for folder in folders if folder not in named]
    # A set of vehicles may have a class "train": such a folder holds images, not folders.
    has_train = any(folder.name.casefold() == "train" and _subfolders(folder) for folder in named)
    if others and not has_train:
        return {"train": root}
    if others:
        raise DataError(f"{root} has train/ with subfolders, and beside it {', '.join(others)}; {LAYOUT}")
    if not named:
        raise DataError(f"{root} has no subfolders; {LAYOUT}")
    parts: dict[str, Path] = {}
    for folder in named:
        split = SPLIT_NAMES[folder.name.casefold()]
        if split in parts:
            raise DataError(f"{parts[split]} and {folder} are both for {split}: keep one")
        parts[split] = folder
    if "train" not in parts:
        raise DataError(f"{root} has {', '.join(folder.name for folder in named)}, but no train/; {LAYOUT}")
    return {split: parts[split] for split in ("train", "validation", "test") if split in parts}


def _check_classes(root: Path, train: Path, classes_of: dict[str, list[str]]) -> None:
    classes = classes_of["train"]
    if not classes:
        raise DataError(f"{train} has no subfolders; expected one per class")
    if len(classes) == 1:
        raise DataError(f"{root} has one class only, {classes[0]!r}; expected at least two subfolders")
    for split, names in classes_of.items():
        if names != classes:
            missing = ", ".join(sorted(set(classes) - set(names))) or "none"
            extra = ", ".join(sorted(set(names) - set(classes))) or "none"
            raise DataError(
                f"the classes in the {split} folder of {root} differ from those in train/: "
                f"missing {missing}; not in train/: {extra}. Each split needs the same subfolders"
            )


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    return [folder / name for name in names if not _is_clutter(name)]


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir()]


def _files(folder: Path) -> Iterator[Path]:
    """All files below, folder by folder in the order of their names; links to folders are not followed."""
    for path in _entries(folder):
        if not path.is_dir():
            yield path
        elif not path.is_symlink():
            yield from _files(path)


def _is_clutter(name: str) -> bool:
    return name.startswith(".") or name.casefold() in CLUTTER
