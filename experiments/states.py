"""How far a job is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from experiments.cells import Ensemble, Job, Run, Times
from experiments.results import Places, Result, read_result, read_values
from torchcaps.runs.folder import METRICS, RESULT, RUN
from torchcaps.runs.metrics import read_rows
from torchcaps.runs.text import percent, short
from torchcaps.train.recipe import OF_CAPSULES, NetworkSettings, Recipe, flatten, read_recipe

Kind = Literal["done", "finished", "interrupted", "not run"]
DEFAULTS = flatten(Recipe().as_json())
NO_SETTINGS = ("name", "root", "checkpoint_every")  # what it is called, where its data is, how often it is saved
ONLY_CAPSULES = (*OF_CAPSULES, "reconstruction", "routing_rate")


class State(NamedTuple):
    kind: Kind  # finished: trained to its end, but without a result yet
    where: Path  # what says so
    words: str
    differs: tuple[str, ...] = ()  # the fields in which what is there is of another recipe


def state_of(job: Job, places: Places) -> State:
    """What is there of a job, and of which recipe it is."""
    path = places.result(job)
    if isinstance(job, Times):
        return State("not run", path, "not run") if read_values(path) is None else State("done", path, "done")
    result = read_result(path)
    if result is not None:
        differs = differences_of(job, result)
        members = job.members if isinstance(job, Ensemble) else ()
        changed = run_again(result, {run.name: read_result(places.result(run)) for run in members})
        if changed and not differs:
            return State("finished", path, f"not evaluated since {', '.join(changed)} ran again")
        return State("done", path, done_words(result), differs)
    folder = places.folder(job)
    if not isinstance(job, Run) or not (folder / RUN).is_file():
        return State("not run", path, "not run")
    differs = differences(fields_of(read_recipe(folder)), fields_of(job.recipe))
    if (folder / RESULT).is_file():
        return State("finished", folder, "finished, not recorded", differs)
    rows = read_rows(folder / METRICS)
    epoch = (rows[-1]["epoch"] if rows else None) or 0.0
    return State("interrupted", folder, f"interrupted at epoch {short(epoch)}", differs)


def done_words(result: Result) -> str:
    """With the error, where there is one."""
    if result.failed:
        return "done: training failed"
    return "done" if result.error is None else f"done: {percent(result.error)}"


def run_again(ensemble: Result, results: Mapping[str, Result | None]) -> tuple[str, ...]:
    """The runs of an ensemble whose results are no longer those that it was made of."""
    found = {name: results.get(name) for name in ensemble.members}
    return tuple(name for name, one in found.items() if one is not None and one.mark != ensemble.members[name])


def differences_of(job: Run | Ensemble, result: Result) -> tuple[str, ...]:
    """How a result is of other settings than the job's."""
    runs = job.members if isinstance(job, Ensemble) else (job,)
    wanted = [run.recipe.optimisation.seed for run in runs]
    alone = len(result.seeds) == len(wanted) == 1  # then the seed is the recipe's
    seeds = () if alone or result.seeds == wanted else (f"seeds {result.seeds}, now {wanted}",)
    return differences(result.recipe, fields_of(job.recipe)) + seeds


def fields_of(recipe: Recipe) -> dict[str, Any]:
    """As they stand in a file, side by side."""
    return flatten(recipe.as_json())


def settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recipe that decide what comes out; those that it is too old to have are the defaults."""
    values = {**DEFAULTS, **recipe}
    has_capsules = NetworkSettings(model=values["model"]).has_capsules
    without = NO_SETTINGS if has_capsules else (*NO_SETTINGS, *ONLY_CAPSULES)
    return {name: value for name, value in values.items() if name not in without}


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings in which recipes differ; what neither has does not count."""
    old, new = {**DEFAULTS, **found}, {**DEFAULTS, **wanted}
    names = settings(found) | settings(wanted)
    return tuple(f"{name} {old.get(name)}, now {new.get(name)}" for name in names if old.get(name) != new.get(name))
