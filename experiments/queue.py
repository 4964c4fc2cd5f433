"""The jobs one after the other: what is done is skipped, what was interrupted is continued."""

import shutil
from collections.abc import Sequence
from contextlib import nullcontext

from rich.console import Console

from experiments.cells import Ensemble, Job, Run, Times
from experiments.record import record, record_ensemble
from experiments.results import Places
from experiments.states import State, state_of
from experiments.times import measure_times
from torchcaps.data.catalog import BUILT_IN
from torchcaps.data.locate import find_folder
from torchcaps.errors import UserError
from torchcaps.runs.folder import LOCK, RUN, BusyError, locked
from torchcaps.train.devices import Precision
from torchcaps.train.run import train


class OtherRecipeError(UserError):
    """Something is there already, of a run with other settings."""


def run_jobs(
    jobs: Sequence[Job],
    places: Places,
    console: Console,
    *,
    again: bool = False,
    precision: Precision | None = None,
) -> None:
    """Do what is not done yet, in order, but for what another process is doing: several may share one list.

    What is there of another recipe is an error, before anything is trained; with ``again`` it is removed when its turn
    comes, and run again. ``precision`` is that of new runs; one that has begun keeps its own.
    """
    states = [(job, state_of(job, places)) for job in jobs]
    if not again:
        check_recipes(states)
    todo: list[Job] = []
    for job, state in states:
        of_others = isinstance(job, Ensemble) and any(other in job.members for other in todo)
        if state.kind != "done" or of_others or (again and state.differs):
            todo.append(job)
        else:
            kept = " (its recipe has changed since; --again runs it again)" if state.differs else ""
            say(console, f"{job.name}: {state.words}{kept}")
    check_data(todo)
    left: list[Job] = []
    for number, job in enumerate(todo, 1):
        say(console, f"\n[{number}/{len(todo)}] {job.place}/{job.name}")
        state = state_of(job, places)  # hours may have passed, in which another process did it
        if not again:
            check_recipes([(job, state)])
        if state.kind == "done" and not isinstance(job, Ensemble) and not (again and state.differs):
            say(console, f"meanwhile {state.words}")
            continue
        if state.differs:
            remove(job, places)
        try:
            if isinstance(job, Ensemble) and any(member in left for member in job.members):
                raise BusyError(f"another process is training a member of {job.name}")
            run_job(job, places, console, precision)
        except BusyError:
            say(console, "skipped: another process is running it")
            left.append(job)
    if left:
        names = ", ".join(job.name for job in left)
        say(console, f"\nskipped, as other processes are running them: {names}; run this again when they are done")


def run_job(job: Job, places: Places, console: Console, precision: Precision | None = None) -> None:
    """Do one, from wherever it stands."""
    if isinstance(job, Times):
        measure_times(job, places, console)
    elif isinstance(job, Ensemble):
        record_ensemble(job, places)
    else:
        finished = state_of(job, places).kind == "finished"
        record(job, places, None if finished else follow(job, places, console, precision))


def follow(run: Run, places: Places, console: Console, precision: Precision | None = None) -> str | None:
    """Train, or continue; a training that diverges has failed, which is a result too: returns why."""
    from torchcaps.train.finite import NotFiniteError
    from torchcaps.train.loop import Resources

    folder = places.folder(run)
    begun = (folder / RUN).is_file()
    try:
        train(
            run.recipe,
            output=None if begun else folder,
            resume=folder if begun else None,
            resources=Resources(precision=None if begun else precision),
            console=console,
            test=run.trial is None,
        )
    except NotFiniteError as error:
        say(console, f"training failed: {error}")
        return str(error)
    return None


def check_recipes(states: Sequence[tuple[Job, State]]) -> None:
    """Raise where something is there of another recipe. Trials are a diary: theirs stay as they were."""
    others = [
        state
        for job, state in states
        if state.differs and not (isinstance(job, Run) and job.trial is not None and state.kind == "done")
    ]
    if not others:
        return
    lines = [f"  {state.where}: {'; '.join(state.differs)}" for state in others]
    raise OtherRecipeError(
        "these are of other recipes than the runs that are asked for:\n"
        + "\n".join(lines)
        + "\nrun them again with --again, which replaces them; leave them out with --only; "
        "or keep them in another --results and --runs"
    )


def check_data(jobs: Sequence[Job]) -> None:
    """Raise where a set is missing, before hours are spent on the others."""
    recipes = [job.recipe for job in jobs if isinstance(job, Run)]
    for data, root in dict.fromkeys((recipe.data.data, recipe.data.root) for recipe in recipes):
        if data != BUILT_IN:
            find_folder(data, root)


def remove(job: Job, places: Places) -> None:
    """What is there of a job; raises where another process trains in its folder."""
    folder = places.folder(job)
    is_ours = (folder / RUN).is_file()
    with locked(folder) if is_ours else nullcontext():
        places.result(job).unlink(missing_ok=True)
        places.picture(job).unlink(missing_ok=True)
        paths = sorted(folder.iterdir(), key=lambda path: path.name == RUN) if is_ours else []
        for path in paths:  # run.json last: until then the rest is known for what it is
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
