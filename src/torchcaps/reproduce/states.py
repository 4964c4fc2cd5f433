"""How far a job is."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torchcaps.errors import OptionError
from torchcaps.report.numbers import percent, short
from torchcaps.reproduce.cells import Ensemble, Job, Run, Times
from torchcaps.reproduce.results import Places, read_values
from torchcaps.train.recipe import Recipe, recipe_from_json
from torchcaps.train.rows import read_rows
from torchcaps.train.run_folder import METRICS, RESULT, RUN, read_recipe

Kind = Literal["done", "finished", "interrupted", "not run"]


class State(NamedTuple):
    kind: Kind  # finished: trained to its end, but without a result yet
    where: Path  # what says so
    words: str
    differs: tuple[str, ...] = ()  # the fields in which what is there is of another recipe


def state_of(job: Job, places: Places) -> State:
    """What is there of a job, and of which recipe it is."""
    path = places.result(job)
    values = read_values(path)
    if values is not None:
        return State("done", path, done_words(values), differences_of(job, values))
    folder = places.folder(job)
    if not isinstance(job, Run) or not (folder / RUN).is_file():
        return State("not run", path, "not run")
    differs = differences(read_recipe(folder), job.recipe)
    if (folder / RESULT).is_file():
        return State("finished", folder, "finished, not recorded", differs)
    rows = read_rows(folder / METRICS)
    epoch = (rows[-1]["epoch"] if rows else None) or 0.0
    return State("interrupted", folder, f"interrupted at epoch {short(epoch)}", differs)


def done_words(values: dict[str, Any]) -> str:
    """With the error, where there is one."""
    if values.get("failed"):
        return "done: training failed"
    error = values.get("test_error")
    return "done" if error is None else f"done: {percent(error)}"


def differences_of(job: Job, values: dict[str, Any]) -> tuple[str, ...]:
    """How a result is of other settings than the job's; times have none."""
    if isinstance(job, Times):
        return ()
    try:
        found = recipe_from_json(values["recipe"])
    except (KeyError, TypeError, OptionError) as error:
        return (f"its recipe cannot be read: {error}",)
    wanted = [run.recipe.seed for run in job.members] if isinstance(job, Ensemble) else None
    seeds = values.get("seeds")
    other = () if seeds == wanted else (f"seeds {seeds}, now {wanted}",)
    return differences(found, job.recipe) + other


def differences(found: Recipe, wanted: Recipe) -> tuple[str, ...]:
    """The fields in which recipes differ, but for where the data is."""
    wanted = replace(wanted, root=found.root)
    pairs = {item.name: (getattr(found, item.name), getattr(wanted, item.name)) for item in fields(Recipe)}
    return tuple(f"{name} {old}, now {new}" for name, (old, new) in pairs.items() if old != new)
