"""Where the files of a set are."""

import os
from pathlib import Path

from torchcaps.data.sources import Source, find_source
from torchcaps.data.types import DataError

VARIABLE = "TORCHCAPS_DATA"


def find_folder(name: str, root: Path | None = None) -> Path:
    """The folder that has all files of a set.

    A root that was given is the only place to look, else a mistyped one would train on other files than were meant;
    without it come TORCHCAPS_DATA, the cache folder, and where the system's packages put the set.
    """
    source = find_source(name)
    places = candidates(source, root)
    for folder in places:
        if not source.missing(folder):
            return folder
    looked = "\n".join(f"  {folder}: {state(source, folder)}" for folder in places)
    target = download_folder(source, root)
    download = f"`torchcaps data fetch {name}{f' --root {root}' if root else ''}` downloads it."
    raise DataError(f"{source.title} is in none of these:\n{looked}\n{download}\n{source.by_hand(target)}")


def candidates(source: Source, root: Path | None = None) -> list[Path]:
    """The folders to look in, in order."""
    if root is not None:
        return with_subfolders(source, root)
    given = os.environ.get(VARIABLE)
    places = with_subfolders(source, Path(given).expanduser()) if given else []
    return [*places, cache_folder() / source.subfolders[0], *source.system_folders]


def with_subfolders(source: Source, root: Path) -> list[Path]:
    """A root as a folder of sets and as the set's own folder; the former first, as its name says what is in it."""
    inside = [root / name for name in source.subfolders if (root / name).is_dir()]
    return [*(inside or [root / source.subfolders[0]]), root]


def download_folder(source: Source, root: Path | None = None) -> Path:
    """Where downloads go: into the set's own folder, be it the root or in it."""
    base = root or (Path(os.environ[VARIABLE]).expanduser() if os.environ.get(VARIABLE) else cache_folder())
    own = base.name in source.subfolders or source.holds_any(base)
    return base if own else base / source.subfolders[0]


def cache_folder() -> Path:
    """The user's cache folder for our data."""
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:  # whoever has the files needs no downloader to find them
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchcaps"
    return Path(pooch.os_cache("torchcaps"))


def state(source: Source, folder: Path) -> str:
    """What is wrong with a place."""
    if not folder.is_dir():
        return "no such folder"
    if not source.holds_any(folder):
        return "none of its files"
    return f"lacks {', '.join(source.missing(folder))}"
