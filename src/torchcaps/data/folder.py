"""A user's own images: a folder with one subfolder per class, or ``train/ val/ test/`` of those."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torchcaps.data.decode import import_pillow
from torchcaps.data.folder_cache import Decoded, decode_cached
from torchcaps.data.folder_layout import Layout, scan
from torchcaps.data.splits import stratified_holdout
from torchcaps.data.types import DataError, ImageSet, Split

NAMED_AT_MOST = 100  # bad files in one message
OTHERS_NAMED = 3  # files that are no images, in one line


def load_folder(
    path: str | Path,
    *,
    size: int,
    channels: Literal["auto", 1, 3] = "auto",
    skip_bad: bool = False,
    cache: str | Path | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    progress: bool = True,
) -> ImageSet:
    """Load a folder of PNG, JPEG, WebP, BMP, TIFF and GIF images, squares of ``size``: `read_image` says how.

    ``channels="auto"`` is 1 where every image is grey, else 3. Files of other names are left out, and the set's note
    says so. Images that cannot be used are an error that names them all, or with ``skip_bad`` are left out. Decoded
    images are kept in ``cache`` (default: the user's cache folder) until a file changes. A folder without ``test/``
    gives ``test_fraction`` of each class to the test split (0: none), always the same for one seed; `make_splits` does
    so for the validation split where there is no ``val/``.
    """
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1")
    if channels not in ("auto", 1, 3):
        raise ValueError(f"channels is {channels!r}, expected 'auto', 1 or 3")
    import_pillow()
    root = Path(path).expanduser()
    layout = scan(root)
    decoded = decode_cached(
        root,
        layout.files,
        size=size,
        channels=None if channels == "auto" else channels,
        cache=_default_cache() if cache is None else Path(cache).expanduser(),
        progress=progress,
    )
    notes = [decoded.note] if decoded.note else []
    if layout.others:
        notes.append(_others(root, layout.others))
    bad = {layout.files[place]: reason for place, reason in decoded.bad.items()}
    bad |= dict.fromkeys(layout.strays, "it lies beside the class folders, in none of them")
    if bad and not skip_bad:
        raise DataError(_complaint(root, bad))
    if bad:
        notes.append(f"{len(bad)} of {len(layout.files) + len(layout.strays)} files skipped as unusable")
    parts = _parts(layout, decoded)
    _check_every_class(root, layout.classes, parts)
    if "test" not in parts and not test_fraction:
        parts["test"] = parts["train"].take(torch.arange(0))
    if "test" not in parts:
        labels = parts["train"].labels
        _check_enough_to_share(root, layout.classes, labels)
        kept, held = stratified_holdout(labels, test_fraction, seed)
        parts = {**parts, "train": parts["train"].take(kept), "test": parts["train"].take(held)}
        notes.append(f"test: {len(held)} images, {test_fraction:.0%} of each class at random, as there is no test/")
    return ImageSet(
        name=root.resolve().name,
        classes=layout.classes,
        train=parts["train"],
        test=parts["test"],
        folder=root,
        validation=parts.get("validation"),
        note="; ".join(notes),
    )


def _parts(layout: Layout, decoded: Decoded) -> dict[str, Split]:
    good = [place for place in range(len(layout.files)) if place not in decoded.bad]
    labels = torch.tensor([layout.labels[place] for place in good], dtype=torch.int64)  # [n]
    everything = Split(decoded.images, labels, files=tuple(layout.files[place] for place in good))
    splits = [layout.splits[place] for place in good]
    if set(layout.splits) == {"train"}:
        return {"train": everything}
    return {
        name: everything.take(torch.tensor([i for i, split in enumerate(splits) if split == name], dtype=torch.int64))
        for name in dict.fromkeys(layout.splits)
    }


def _check_every_class(root: Path, classes: tuple[str, ...], parts: dict[str, Split]) -> None:
    for split, part in parts.items():
        for name, count in zip(classes, _counts(part.labels, classes), strict=True):
            if not count:
                raise DataError(f"class {name!r} of {root} has no usable image for {split}: repair or remove its files")


def _check_enough_to_share(root: Path, classes: tuple[str, ...], labels: Tensor) -> None:
    for name, count in zip(classes, _counts(labels, classes), strict=True):
        if count < 2:
            raise DataError(
                f"class {name!r} of {root} has one image only, and the folder has no test/: "
                "at least two are needed, one to train on and one to test on"
            )


def _counts(labels: Tensor, classes: tuple[str, ...]) -> list[int]:
    return [int(count) for count in torch.bincount(labels, minlength=len(classes))]


def _complaint(root: Path, bad: dict[Path, str]) -> str:
    named = [f"  {path.relative_to(root)}: {reason}" for path, reason in list(bad.items())[:NAMED_AT_MOST]]
    if len(bad) > len(named):
        named.append(f"  and {len(bad) - len(named)} more")
    lines = [f"{len(bad)} of the files in {root} cannot be used:", *named]
    return "\n".join([*lines, "Repair or remove them, or skip them (skip_bad=True, on the command line --skip-bad)."])


def _others(root: Path, paths: tuple[Path, ...]) -> str:
    names = [str(path.relative_to(root)) for path in paths[:OTHERS_NAMED]]
    shown = ["".join(c if c.isprintable() else "?" for c in name) for name in names]  # it goes to the terminal
    if len(paths) > len(shown):
        shown.append(f"and {len(paths) - len(shown)} more")
    return f"skipped, as no images: {', '.join(shown)}"


def _default_cache() -> Path:
    from torchcaps.data.locate import cache_folder

    return cache_folder() / "folders"
