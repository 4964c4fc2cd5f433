"""``torchcaps data``: what there is, getting it, checking it, looking at it."""

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from torchcaps.data.catalog import BUILT_IN, list_sets, load
from torchcaps.data.locate import candidates
from torchcaps.data.sources import SOURCES
from torchcaps.data.types import DataError

Action = Literal["list", "fetch", "verify", "show", "export"]


def run(action: Action, name: str | None, root: Path | None, output: Path | None, full: bool) -> None:
    """Do one of the actions; all but ``list`` are about one set."""
    if action == "list":
        list_all(root)
        return
    if name is None:
        raise DataError(f"torchcaps data {action} wants a name: one of {', '.join(list_sets())}")
    if name not in list_sets():
        raise DataError(f"data set {name!r}: wanted one of {', '.join(list_sets())}")
    {"fetch": fetch, "verify": verify, "show": show, "export": export}[action](name, root, output, full)


def list_all(root: Path | None) -> None:
    """Every set: its size, terms, and where it was found."""
    table = Table("name", "images", "classes", "terms", "found in")
    for source in SOURCES.values():
        found = next((str(place) for place in candidates(source, root) if not source.missing(place)), "not here")
        images = " + ".join(f"{count:,}" for count in source.counts)
        table.add_row(source.name, images, str(len(source.classes)), source.licence, found)
    table.add_row(BUILT_IN, "up to 24,300 + 24,300", "5", "rendered by torchcaps", "built in")
    Console().print(table)


def fetch(name: str, root: Path | None, output: Path | None, full: bool) -> None:
    """Download a set, or render the built-in one."""
    from torchcaps.data import fetch as fetching
    from torchcaps.data.turntable import DEFAULT_PAIRS, load_turntable

    if name == BUILT_IN:
        folder = load_turntable(root, pairs="full" if full else DEFAULT_PAIRS).folder
    else:
        folder = fetching.fetch(name, root)
    Console().print(f"{name} is in {folder}")


def verify(name: str, root: Path | None, output: Path | None, full: bool) -> None:
    """Say of each file whether it is the official one."""
    from torchcaps.data.verify import verify as statuses

    if name == BUILT_IN:
        raise DataError(f"{BUILT_IN} has no official files: it is rendered from a seed")
    table = Table("file", "status")
    for file, status in statuses(name, root):
        table.add_row(file, status)
    Console().print(table)


def show(name: str, root: Path | None, output: Path | None, full: bool) -> None:
    """Write a contact sheet of the training images, with labels."""
    from torchcaps.data.sheet import contact_sheet

    data = load(name, root=root)
    path = contact_sheet(data.train, data.classes, output or Path(f"{name}.png"))
    Console().print(f"{len(data.train):,} training and {len(data.test):,} test images; some of them are in {path}")


def export(name: str, root: Path | None, output: Path | None, full: bool) -> None:
    """Write the built-in set in smallNORB's own format."""
    from torchcaps.data.norb import write_smallnorb
    from torchcaps.data.turntable import DEFAULT_PAIRS, load_turntable

    if name != BUILT_IN:
        raise DataError(f"torchcaps data export writes {BUILT_IN} in smallNORB's format, not {name}")
    if output is None:
        raise DataError("torchcaps data export wants --output, the folder to write to")
    data = load_turntable(root, pairs="full" if full else DEFAULT_PAIRS, camera="both")
    write_smallnorb(output, data.train, data.test)
    Console().print(f"{len(data.train):,} + {len(data.test):,} stereo pairs in smallNORB's format in {output}")
