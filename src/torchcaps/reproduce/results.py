"""The results' JSON files: where they are, how they are written and read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.data.writing import whole_file
from torchcaps.errors import UserError
from torchcaps.reproduce.cells import Job


@dataclass(frozen=True)
class Places:
    """Where results and run folders are."""

    results: Path
    runs: Path

    def result(self, job: Job) -> Path:
        """The file that says that a job is done."""
        return self.results / job.place / f"{job.name}.json"

    def picture(self, job: Job) -> Path:
        """Its reconstructions, where it has a decoder."""
        return self.result(job).with_suffix(".png")

    def folder(self, job: Job) -> Path:
        """Where a run trains."""
        return self.runs / job.place / job.name


@dataclass(frozen=True)
class Result:
    """What a result's file holds."""

    values: dict[str, Any]
    picture: Path | None = None

    @property
    def name(self) -> str:
        return str(self.values["name"])

    @property
    def recipe(self) -> dict[str, Any]:
        return dict(self.values["recipe"])

    @property
    def seeds(self) -> list[int]:
        """One, or those of an ensemble."""
        return list(self.values.get("seeds") or [self.values["seed"]])

    @property
    def error(self) -> float | None:
        """On the test split; None where training failed."""
        value = self.values["test_error"]
        return None if value is None else float(value)

    @property
    def failed(self) -> str | None:
        """Why training broke off."""
        return self.values.get("failed")

    @property
    def data(self) -> str:
        return str(self.values["data"]["title"])

    def course(self, column: str) -> list[tuple[float, float]]:
        """A loss by epoch."""
        names = self.values["curves"]["columns"]
        epoch, place = names.index("epoch"), names.index(column)
        rows = self.values["curves"]["rows"]
        return [(row[epoch], row[place]) for row in rows if row[place] is not None]


def write_result(path: Path, values: dict[str, Any]) -> None:
    """A line for each value: all of it or nothing."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]
    with whole_file(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_values(path: Path) -> dict[str, Any] | None:
    """What a file holds, or None where there is none."""
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; restore the file, or remove it to make it again") from error
    if not isinstance(values, dict) or "name" not in values:
        raise UserError(f"{path} is no result of torchcaps reproduce; restore the file, or remove it to make it again")
    return values


def read_results(folder: Path) -> dict[str, Result]:
    """All results of a folder by name, but for the times."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        values = read_values(path)
        if values is not None and "recipe" in values:
            picture = path.with_suffix(".png")
            found[path.stem] = Result(values, picture if picture.is_file() else None)
    return found
