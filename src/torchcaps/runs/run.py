"""A run folder, read."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from torchcaps.errors import UserError
from torchcaps.runs.folder import METRICS, RESULT, RUN
from torchcaps.runs.metrics import is_epoch_end, read_rows

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run, as its files tell it."""

    card: dict[str, Any]  # run.json
    result: dict[str, Any]  # result.json
    rows: list[dict[str, float]]  # metrics.csv; cells that are empty or not finite are left out

    def part(self, name: str) -> dict[str, Any]:
        """A part of the card, empty where there is none."""
        part = self.card.get(name)
        return part if isinstance(part, dict) else {}

    def number(self, name: str) -> float | None:
        """A number of the result, where it has one."""
        value = self.result.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if is_number and value is not None else None

    def course(self, name: str) -> list[Point]:
        """A column by epoch: of values at a moment, as the rate, and of those that epochs end with, as validation."""
        return [(row["epoch"], row[name]) for row in self.rows if name in row]

    def by_epoch(self, name: str) -> list[Point]:
        """The means of a column over the epochs; of one that broke off over its steps."""
        found = []
        for rows in self._epochs():
            known = [(steps, row) for steps, row in rows if name in row]
            if known and is_epoch_end(known[-1][1]["epoch"]):
                known = known[-1:]  # it holds the mean already
            if known:
                mean = sum(steps * row[name] for steps, row in known) / sum(steps for steps, _ in known)
                found.append((known[-1][1]["epoch"], mean))
        return found

    def by_steps(self) -> list[dict[str, float]]:
        """The rows that are means over a few steps; of epochs that are too short for one, those of the epoch."""
        found = []
        for rows in self._epochs():
            within = [row for _, row in rows if not is_epoch_end(row["epoch"])]
            found += within or [rows[-1][1]]
        return found

    def _epochs(self) -> Iterator[list[tuple[float, dict[str, float]]]]:
        """The rows of each epoch, with the number of steps since the row before."""
        steps = [max(row["step"] - before["step"], 1.0) for before, row in pairwise([{"step": 0.0}, *self.rows])]
        with_steps = zip(steps, self.rows, strict=True)
        for _, rows in groupby(with_steps, key=lambda pair: math.ceil(pair[1]["epoch"] - 1e-6)):
            yield list(rows)


def read_run(folder: Path, *, finished: bool = True) -> Run:
    """Read the three files; without metrics there is still a page to make. One that broke off has no result."""
    result = _json(folder / RESULT) if finished else {}
    return Run(card=_json(folder / RUN), result=result, rows=_rows(folder))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; expected the folder of a finished training run") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, expected the object that a training run writes")
    return content


def _rows(folder: Path) -> list[dict[str, float]]:
    rows = [
        {name: value for name, value in row.items() if value is not None and math.isfinite(value)}
        for row in read_rows(folder / METRICS)
    ]
    return [row for row in rows if "step" in row and "epoch" in row]
