"""The folder that a run leaves: what is in it, and how it gets its name."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchcaps.data.writing import disk_errors, whole_file
from torchcaps.errors import UserError

RUNS = Path("runs")
RUN, METRICS, RESULT = "run.json", "metrics.csv", "result.json"
LAST, BEST = "checkpoints/last.ckpt", "checkpoints/best.ckpt"
LOCK = ".lock"


class RunFolderError(UserError):
    """A run folder that cannot be made, or cannot be resumed."""


class BusyError(RunFolderError):
    """Another process is training in the folder."""


def create(name: str, output: Path | None) -> Path:
    """A new, empty folder: the given one, or the first free ``runs/<name>-<n>``.

    What a run left that was killed before it began does not count. Raises where another process trains in it.
    """
    if not name or name.startswith(".") or any(c in "/\\" or not c.isprintable() for c in name):
        raise RunFolderError(
            f"name is {name!r}, expected one without slashes, control characters or a leading dot: it becomes "
            "runs/NAME-1; --output puts the run elsewhere"
        )
    if output is None:
        return _first_free(name)
    with disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        taken = any(path.name != LOCK and not path.name.startswith(f".{RUN}.") for path in output.iterdir())
    if taken:
        if (output / LOCK).exists():
            with locked(output):  # another process may have begun there a moment ago: then that is said
                pass
        raise RunFolderError(
            f"{output} exists and is not empty: resume its run with --resume {output}, or choose another --output"
        )
    return output


def _first_free(name: str) -> Path:
    with disk_errors(RUNS):
        RUNS.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = RUNS / f"{name}-{number}"
        with disk_errors(folder):
            try:
                folder.mkdir()  # fails where another process was faster
                return folder
            except FileExistsError:
                number += 1


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """For one process (and those that it trains with); a killed one leaves no lock."""
    from filelock import FileLock, Timeout

    with disk_errors(folder):
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise BusyError(f"another process is training in {folder}: stop it first, or start a new run") from None
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, values: dict[str, Any]) -> None:
    """All of it or nothing."""
    with whole_file(path) as file:
        file.write((json.dumps(values, indent=1) + "\n").encode())
