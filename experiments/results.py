"""The results' JSON files: where they are, how they are written and read."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cells import TIMES, Job
from torchcaps.data.locate import unofficial
from torchcaps.data.sources import SOURCES
from torchcaps.data.writing import whole_file
from torchcaps.errors import UserError
from torchcaps.runs.text import count, short
from torchcaps.train.devices import DEFAULT_PRECISION
from torchcaps.train.recipe import flatten

Point = tuple[float, float]


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


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a result's file holds."""

    name: str
    recipe: dict[str, Any]  # its fields, side by side
    seeds: list[int]  # one, or those of an ensemble
    error: float | None  # on the test split; None where training failed, and of trials
    images: int  # of the test split
    failed: str | None  # why training broke off
    machine: str
    precision: str
    started: str | None
    data: str
    epochs: int
    seconds: float
    training: list[float]  # errors by epoch
    validation: list[float]
    curves: dict[str, list[Point]]  # by epoch
    members: dict[str, Any]  # of an ensemble: the marks of its runs
    trial: dict[str, str] | None
    familiar_error: float | None  # on test images of viewpoints that were in training
    crops_error: float | None  # on the test split, with the mean over several crops
    iterations_error: dict[int, float]  # on the test split, by the number of iterations of routing
    held_out: dict[str, float]  # errors by object, or by class: validation of a trial, test on new objects
    picture: Path | None = None

    @property
    def is_ensemble(self) -> bool:
        return len(self.seeds) > 1

    @property
    def length(self) -> str:
        """The epochs, and how many of them where training broke off; of an ensemble those that each run should have."""
        if self.failed is None or self.is_ensemble:
            return count(self.epochs, "epoch")
        points = [point for course in self.curves.values() for point in course]
        return f"failed at epoch {short(max(points)[0] if points else 0.0)} of {self.epochs}"

    @property
    def mark(self) -> dict[str, Any]:
        """What tells a run from the same one run again."""
        return {"test_error": self.error, "started": self.started}


def parse(values: Mapping[str, Any], picture: Path | None = None) -> Result:
    """Everything that the report may ask for; what is missing or of another kind raises what Python has for it."""
    error, failed, trial = values["test_error"], values["failed"], values.get("trial")
    table = values.get("curves", {"columns": ["epoch"], "rows": []})  # an ensemble has none
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return Result(
        name=str(values["name"]),
        recipe=flatten(values["recipe"]),
        seeds=[int(seed) for seed in values.get("seeds") or [values["seed"]]],
        error=as_error(error),
        images=int(values["test_images"]),
        failed=None if failed is None else str(failed),
        machine=str(values["machine"]),
        precision=str(values.get("precision") or DEFAULT_PRECISION),  # older ones do not say
        started=values.get("started"),
        data=str(values["data"]["title"]),
        epochs=int(values["epochs"]),
        seconds=float(values["seconds"]),
        training=[float(y) for _, y in values.get("training_error", [])],
        validation=[float(y) for _, y in values.get("validation_error", [])],
        curves={
            name: [(float(row["epoch"]), float(row[name])) for row in rows if row[name] is not None]
            for name in table["columns"]
        },
        members={**values.get("members", {})},
        trial=None if trial is None else {name: str(trial[name]) for name in ("group", "asks")},
        familiar_error=as_error(values.get("familiar_error")),
        crops_error=as_error(values.get("crops_error")),
        iterations_error={int(name): float(value) for name, value in values.get("iterations_error", {}).items()},
        held_out={str(name): float(value) for name, value in values.get("held_out", {}).items()},
        picture=picture,
    )


def as_error(value: Any) -> float | None:
    return None if value is None else float(value)


def write_result(path: Path, values: dict[str, Any]) -> None:
    """All of it or nothing."""
    with whole_file(path) as file:
        file.write(result_text(values).encode())


def result_text(values: dict[str, Any]) -> str:
    """JSON with a line for each value."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@contextmanager
def usable(path: Path, remedy: str = "restore the file, or remove it to make it again") -> Iterator[None]:
    """What goes wrong with what a file holds, in our words."""
    try:
        yield
    except (OSError, UserError, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} cannot be read: {reason}; {remedy}") from error


def read_values(path: Path) -> dict[str, Any] | None:
    """What a file holds, or None where there is none."""
    if not path.is_file():
        return None
    with usable(path):
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise TypeError(f"it holds a {type(values).__name__}, expected a result of python -m experiments")
        return values


def read_result(path: Path) -> Result | None:
    """The result in a file, or None where there is none."""
    values, picture = read_values(path), path.with_suffix(".png")
    if values is None:
        return None
    with usable(path):
        return parse(values, picture if picture.is_file() else None)


def read_results(folder: Path) -> dict[str, Result]:
    """All results of a folder by name, but for the times."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != f"{TIMES}.json"]
    return {path.stem: result for path in paths if (result := read_result(path)) is not None}


def data_title(name: str, root: Path | None) -> str:
    """A set's name; of one whose images are not the official ones, with a word that says so."""
    title = SOURCES[name].title if name in SOURCES else name
    note = unofficial(name, root).note
    return f"{title} ({note})" if note else title
