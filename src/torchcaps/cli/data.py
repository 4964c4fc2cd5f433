"""``torchcaps data``: list, fetch, verify, show and export data sets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional

from torchcaps.cli.tables import fitting_table, name_text
from torchcaps.data.catalog import BUILT_IN, list_sets, load
from torchcaps.data.folder import load_folder
from torchcaps.data.locate import candidates
from torchcaps.data.sources import SOURCES
from torchcaps.data.types import DataError, ImageSet

Action = Literal["list", "fetch", "verify", "show", "export"]
FOLDER_SIZE = 96  # of the images of a folder on a contact sheet


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the user typed."""

    action: Action
    name: str | None
    root: Path | None
    output: Path | None
    full: bool
    skip_bad: bool

    def __post_init__(self) -> None:
        """Refuse what would be ignored."""
        is_folder = self.action == "show" and self.name not in list_sets() and self.name is not None
        allowed = {
            "--output": self.action in ("show", "export"),
            "--full": self.name == BUILT_IN,
            "--skip-bad": is_folder,
            "--root": not (is_folder and Path(str(self.name)).is_dir()),
        }
        given = {"--output": self.output is not None, "--full": self.full, "--skip-bad": self.skip_bad}
        given |= {"--root": self.root is not None}
        for option, is_given in given.items():
            if is_given and not allowed[option]:
                raise DataError(
                    f"data {' '.join(filter(None, (self.action, self.name)))}: {option} does nothing here, leave it out"
                )
        if self.action == "list" and self.name is not None:
            raise DataError(f"data list lists all sets: leave {self.name} out")
        if self.action != "list" and self.name is None:
            raise DataError(f"data {self.action} needs a name: one of {', '.join(list_sets())}")
        if self.name is not None and self.name not in list_sets() and not (is_folder and Path(self.name).is_dir()):
            raise DataError(f"data set {self.name!r}: expected one of {', '.join(list_sets())}, or for show a folder")

    def load(self) -> ImageSet:
        """The set that was named."""
        assert self.name is not None
        if self.name in list_sets():
            return load(self.name, root=self.root, full=self.full)
        return load_folder(Path(self.name), size=FOLDER_SIZE, skip_bad=self.skip_bad)


def data_command(
    action: Positional[Action],
    name: Positional[str | None] = None,
    root: Path | None = None,
    output: Path | None = None,
    full: bool = False,
    skip_bad: bool = False,
) -> None:
    """List, fetch, verify or show the data sets; or export turntable in smallNORB's format.

    Args:
        action: What to do.
        name: The set: mnist, fashion-mnist, cifar10, smallnorb or turntable; for show also a folder of images.
        root: The folder of the set, or of several sets.
        output: The file that show writes (default NAME.png), or the folder that export writes to.
        full: All 24,300 + 24,300 stereo pairs of turntable.
        skip_bad: In a folder of images, skip the files that cannot be read.
    """
    run(Call(action=action, name=name, root=root, output=output, full=full, skip_bad=skip_bad))


def run(call: Call) -> None:
    """Do what was asked for."""
    {"list": list_all, "fetch": fetch, "verify": verify, "show": show, "export": export}[call.action](call)


def list_all(call: Call) -> None:
    """Every set with its size and where it was found; then terms and homepages, which are too long for a table."""
    console = Console(highlight=False)
    rows: list[list[str | Text]] = []
    for source in SOURCES.values():
        found = next((str(place) for place in candidates(source, call.root) if not source.missing(place)), "not found")
        images = " + ".join(f"{count:,}" for count in source.counts)
        rows.append([source.name, images, str(len(source.classes)), name_text(found)])
    rows.append([BUILT_IN, "24,300 + 24,300", "5", "built in"])
    headings = ("name", "images", "classes", "found in")
    console.print(fitting_table(console, headings, rows, drop=("classes", "images")))
    console.print("Terms:")
    for source in SOURCES.values():
        console.print(f"{source.name}: {source.licence}; {source.homepage}", markup=False, soft_wrap=True)


def fetch(call: Call) -> None:
    """Download a set, or render the built-in one."""
    from torchcaps.data import fetch as fetching

    assert call.name is not None
    folder = call.load().folder if call.name == BUILT_IN else fetching.fetch(call.name, call.root)
    Console().print(f"{call.name} is in {folder}")


def verify(call: Call) -> None:
    """Compare each file with the official one; exit with 1 where a file is damaged or missing."""
    from torchcaps.data.locate import MISSING
    from torchcaps.data.locate import verify as statuses

    if call.name is None or call.name == BUILT_IN:
        raise DataError(f"{BUILT_IN} has no official files: it is rendered from a seed")
    rows = statuses(call.name, call.root)
    console = Console()
    console.print(
        fitting_table(console, ("file", "status"), [(name_text(file), Text(status)) for file, status in rows])
    )
    if any(status == MISSING or status.startswith("damaged") for _, status in rows):
        raise SystemExit(1)


def show(call: Call) -> None:
    """Write a contact sheet of the training images, with labels."""
    from torchcaps.data.sheet import contact_sheet

    data = call.load()
    path = contact_sheet(data.train, data.classes, call.output or Path(f"{data.name}.png"))
    note = f" ({data.note})" if data.note else ""
    said = f"{len(data.train):,} training and {len(data.test):,} test images{note}; samples are in {path}"
    Console(markup=False).print(said)


def export(call: Call) -> None:
    """Write the built-in set in smallNORB's own format."""
    from torchcaps.data.norb import write_smallnorb

    if call.name != BUILT_IN:
        raise DataError(f"torchcaps data export writes {BUILT_IN} in smallNORB's format, not {call.name}")
    if call.output is None:
        raise DataError("torchcaps data export needs --output, the folder to write to")
    data = load(BUILT_IN, root=call.root, camera="both", full=call.full)
    write_smallnorb(call.output, data.train, data.test)
    Console().print(f"{len(data.train):,} + {len(data.test):,} stereo pairs in smallNORB's format in {call.output}")
