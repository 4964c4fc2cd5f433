"""The rows of ``metrics.csv``."""

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
)

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
    rows: list[Row] = []
    for line in lines[:-1]:  # after the last line break comes nothing, or a row that was being written
        try:
            values = dict(zip(columns, line.split(","), strict=True))
            rows.append({name: float(values[name]) if values[name] else None for name in COLUMNS})
        except (KeyError, ValueError):
            continue
    return rows
