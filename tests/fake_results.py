"""What stands in for training, and for its results."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from experiments.budgets import BUDGETS
from experiments.cells import Experiments, Times
from experiments.record import recipe_values
from experiments.results import write_result
from torchcaps.data import Split, Splits
from torchcaps.report.pictures import png
from torchcaps.runs import folder as run_folder
from torchcaps.runs.metrics import COLUMNS, append, start_file
from torchcaps.train import Recipe, recipe
from torchcaps.train.checkpoints import Interrupted
from torchcaps.train.finite import NotFiniteError
from torchcaps.train.loop import Resources
from torchcaps.train.run import describe

SPLIT = Split(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.arange(2))


class Trainings:
    """In place of `train`: notes what it was asked for, and leaves what a run leaves."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # name, and new or resumed
        self.tested: list[bool] = []
        self.stops_at: str | None = None  # the name of a run that a signal interrupts
        self.diverges: str | None = None
        self.error = 0.25

    def __call__(
        self,
        found: Recipe,
        *,
        output: Path | None,
        resume: Path | None,
        resources: Resources,
        console: Any,
        test: bool = True,
    ) -> None:
        folder = output or resume
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        with run_folder.locked(folder):
            pass
        self.calls.append((found.name, "new" if resume is None else "resumed"))
        self.tested.append(test)
        describe(folder, found, Splits(("a", "b"), SPLIT, None, SPLIT, note="some"), resources)
        start_file(folder / run_folder.METRICS, 0)
        row = dict.fromkeys(COLUMNS, 0.5) | {"step": 10.0, "epoch": 1.5}
        append(folder / run_folder.METRICS, row)
        if found.name == self.stops_at:
            raise Interrupted(2, 10, folder)
        if found.name == self.diverges:
            raise NotFiniteError("the output loss is nan at step 10")
        result = {"test_error": self.error if test else None, "test_images": 100 if test else 0, "steps": 10}
        run_folder.write_json(folder / run_folder.RESULT, {**result, "seconds": 3.0, "images_per_second": 7.0})

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def recipe_json(name: str, budget: str = "short", **changes: Any) -> dict[str, Any]:
    """The recipe that a job of a budget has, or else that of a name, with changes."""
    found = recipes_of(budget if budget in BUDGETS else "short")
    return recipe_values((found.get(name) or recipe("smallnorb-frem")).with_fields(**changes))


@cache
def recipes_of(budget: str) -> dict[str, Recipe]:
    jobs = Experiments(BUDGETS[budget]).jobs("all")
    return {job.name: job.recipe for job in jobs if not isinstance(job, Times)}


def result_values(name: str, error: float | None, budget: str = "short", **changes: Any) -> dict[str, Any]:
    """A result as a run leaves it."""
    values: dict[str, Any] = {
        "name": name,
        "recipe": recipe_json(name, budget),
        "seed": 0,
        "machine": "a small one, 2 cores",
        "data": {"title": "smallNORB (JPEG copy)", "set": "smallnorb", "train": 24300, "test": 24300},
        "epochs": 6,
        "test_error": error,
        "test_images": 24300,
        "failed": None if error is not None else "the output loss is nan",
        "validation_error": [[1.0, 0.5], [2.0, 0.3], [3.0, 0.4]],
        "training_error": [[1.0, 0.25], [2.0, 0.125]],
        "seconds": 75.0,
        "curves": {
            "columns": ["step", "epoch", "output_loss", "reconstruction_loss"],
            "rows": [[10, 0.5, 0.9, 0.4], [20, 1.0, 0.5, 0.3]],
        },
    }
    return {**values, **changes}


def put_result(folder: Path, name: str, error: float | None, *, picture: bool = False, **changes: Any) -> None:
    """The same in its file."""
    write_result(folder / f"{name}.json", result_values(name, error, folder.name, **changes))
    if picture:
        (folder / f"{name}.png").write_bytes(png(torch.zeros(1, 4, 4)))
