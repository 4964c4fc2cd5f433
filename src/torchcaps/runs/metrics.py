"""The rows of ``metrics.csv``: one every few steps, with the means over these, and one per epoch, with its means."""

import math
from itertools import pairwise
from pathlib import Path

from torchcaps.data.writing import disk_errors, whole_file

COLUMNS = (
    "step",
    "epoch",
    "seconds",
    "images_per_second",
    "rate",
    "margin",
    "loss",
    "output_loss",
    "reconstruction_loss",
    "training_error",
    "validation_error",
    "validation_loss",
)
LATER = ("validation_loss",)  # columns that older files do not have
MEANS = ("loss", "output_loss", "reconstruction_loss", "training_error")

Row = dict[str, float | None]


def start_file(path: Path, step: int) -> None:
    """Begin the file, or cut it to the rows up to a step: what follows will be written again."""
    kept = [row for row in read_rows(path) if row["step"] is not None and row["step"] <= step] if step else []
    with whole_file(path) as file:
        lines = [",".join(COLUMNS), *(as_line(row) for row in kept)]
        file.write("".join(f"{line}\n" for line in lines).encode())


def append(path: Path, row: Row) -> None:
    """Add a row at the end of the file."""
    with disk_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(as_line(row) + "\n")


def as_line(row: Row) -> str:
    """A row of the file: nothing stands for what is not known."""
    return ",".join("" if (value := row[name]) is None else f"{value:.9g}" for name in COLUMNS)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; those that are damaged, as the last one of a killed process may be, are left out."""
    if not path.is_file():
        return []
    head, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    columns = head.split(",")
    absent = dict.fromkeys(set(LATER).difference(columns), "")
    rows: list[Row] = []
    for line in lines[:-1]:  # after the last line break comes nothing, or a row that was being written
        try:
            values = absent | dict(zip(columns, line.split(","), strict=True))
            rows.append({name: float(values[name]) if values[name] else None for name in COLUMNS})
        except (KeyError, ValueError):
            continue
    return with_epoch_means(rows) if absent else rows


def is_epoch_end(epoch: float) -> bool:
    """Whether a row with this number of epochs is one of those that hold the means over a whole epoch."""
    return math.isfinite(epoch) and abs(epoch - round(epoch)) < 1e-6


def with_epoch_means(rows: list[Row]) -> list[Row]:
    """Rows of an older file, in which the last one of an epoch holds the means over the steps since the row before."""
    start: Row = dict.fromkeys(COLUMNS) | {"step": 0.0}
    found: list[Row] = []
    of_epoch: list[tuple[float, Row]] = []  # steps of a row, the row
    for before, row in pairwise([start, *rows]):
        of_epoch.append((max((row["step"] or 0.0) - (before["step"] or 0.0), 1.0), row))
        if row["epoch"] is not None and is_epoch_end(row["epoch"]):
            speeds = [(steps, one["images_per_second"]) for steps, one in of_epoch]
            times = [(steps, 1 / speed if speed else None) for steps, speed in speeds]
            time = _mean(times)
            means = {name: _mean([(steps, one[name]) for steps, one in of_epoch]) for name in MEANS}
            row, of_epoch = {**row, **means, "images_per_second": 1 / time if time else None}, []
        found.append(row)
    return found


def _mean(values: list[tuple[float, float | None]]) -> float | None:
    """Of the values that are known, each counted as often as the number before it says."""
    known = [(weight, value) for weight, value in values if value is not None]
    return sum(weight * value for weight, value in known) / sum(weight for weight, _ in known) if known else None
