"""The command line: python -m experiments."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from experiments.budgets import BUDGETS, BudgetName
from experiments.cells import TARGETS, Ensemble, Experiments, Job, Target, Times
from experiments.results import Places
from experiments.states import state_of
from experiments.tables import paper_text
from torchcaps.cli.tables import Cell, fitting_table
from torchcaps.errors import OptionError
from torchcaps.train.devices import Precision

RESULTS = Path("experiments/results")


def reproduce(
    target: Positional[Target | None] = None,
    budget: BudgetName | None = None,
    only: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="TEXT [TEXT ...]")] = None,
    root: Path | None = None,
    results: Path = RESULTS,
    runs: Path = Path("runs/experiments"),
    list_runs: Annotated[bool, tyro.conf.arg(name="list")] = False,
    again: bool = False,
    precision: Precision | None = None,
    report: bool = False,
    output: Path | None = None,
) -> None:
    """Run the paper's experiments again: what is done is skipped, what was interrupted is continued.

    Each run leaves a JSON file in RESULTS/BUDGET; --report makes results.md of them.

    Args:
        target: A table or figure of the paper, its side claims, other iterations in the test, new objects and
            viewpoints, our trials on validation data, or all of it.
        budget: quick rehearses everything in some minutes, short (the default) takes hours on two cores, long many
            hours, full is the paper's.
        only: Run only these; other text selects every run whose name contains it.
        root: The folder of the data sets; default: TORCHCAPS_DATA, then the cache folder.
        results: Folder of the results.
        runs: Folder of the run folders, which hold checkpoints and weights.
        list_runs: Run nothing; show the runs, the paper's errors, and how far each is.
        again: Rerun and replace results made with different settings.
        precision: bf16 is faster for CNNs, and for capsules after a CNN's convolutions, on CPUs that have it;
            default: 32. What was interrupted goes on as it began.
        report: Write results.md from what is in the results' folder.
        output: Where the report goes; default: docs.
    """
    given = {"--budget": budget is not None, "--only": only is not None, "--list": list_runs, "--again": again}
    given["--precision"] = precision is not None
    refuse_what_would_be_ignored(target, given, report=report, output=output)
    places, console = Places(results, runs), Console()
    budget, output = budget or "short", output or Path("docs")
    if target is not None:
        experiments = Experiments(BUDGETS[budget], root)
        jobs = chosen(experiments.jobs(target), only)
        if list_runs:
            console.print(listing(console, experiments, jobs, places))
            return
        words = ["python", "-m", "experiments", target, "--budget", budget, *(["--only", *only] if only else [])]
        words += [*(["--root", str(root)] if root else []), *(["--again"] if again else [])]
        words += ["--precision", precision] if precision else []
        words += ["--results", str(results), "--runs", str(runs)]
        go_on = shlex.join([*words, *(["--report", "--output", str(output)] if report else [])])
        run_or_stop(jobs, places, console, again, precision, go_on)
    if report:
        from experiments.chapters import NOTES, make_document
        from experiments.document import write_document

        for path in write_document(make_document(results, output / NOTES, root), output):
            console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)


def refuse_what_would_be_ignored(
    target: Target | None, given: Mapping[str, bool], *, report: bool, output: Path | None
) -> None:
    """Raise where options do not go together; ``given`` are those of the runs, and whether they are there."""
    named = [name for name, is_given in given.items() if is_given]
    if target is None and (named or not report):
        wanted = f"{' '.join(named)} expects" if named else "python -m experiments expects"
        raise OptionError(f"{wanted} one of {', '.join(TARGETS)}{'' if named else ', or --report'}")
    if given["--list"] and (report or given["--again"] or given["--precision"]):
        raise OptionError("--list runs nothing and writes nothing: leave out --list, or --report, --again, --precision")
    if output is not None and not report:
        raise OptionError("--output is where the report goes: add --report, or leave --output out")


def chosen(jobs: Sequence[Job], only: Sequence[str] | None) -> list[Job]:
    """The jobs with one of the names, and the runs of an ensemble; a text that is no name is a part of names."""
    if only is None:
        return list(jobs)
    names = [job.name for job in jobs]
    if not only or not all(text.strip() for text in only):
        raise OptionError(f"--only expects names or parts of names; there are {', '.join(names)}")
    meant = {text: [name for name in names if (text == name if text in names else text in name)] for text in only}
    if missed := [text for text, found in meant.items() if not found]:
        raise OptionError(f"--only {' '.join(missed)}: no run has that in its name; there are {', '.join(names)}")
    kept = {name for found in meant.values() for name in found}
    kept |= {run.name for job in jobs if isinstance(job, Ensemble) and job.name in kept for run in job.members}
    return [job for job in jobs if job.name in kept]


def run_or_stop(
    jobs: list[Job], places: Places, console: Console, again: bool, precision: Precision | None, go_on: str
) -> None:
    """Run the jobs; Ctrl-C and the like end with the command to go on with."""
    from torchcaps.train.run import require_lightning

    require_lightning()
    from experiments.queue import run_jobs
    from torchcaps.train.checkpoints import Interrupted

    try:
        run_jobs(jobs, places, console, again=again, precision=precision)
    except Interrupted as interrupted:
        print(f"\n{interrupted}; continue with: {go_on}")
        raise SystemExit(interrupted.exit_code) from None
    except KeyboardInterrupt:  # between two runs, or while data is loaded or a run evaluated
        print(f"\nstopped by Ctrl-C; continue with: {go_on}")
        raise SystemExit(130) from None


def listing(console: Console, experiments: Experiments, jobs: Sequence[Job], places: Places) -> Table:
    """Each with the paper's error and how far it is."""
    paper = {cell.job.name: cell.paper for target in TARGETS for cell in experiments.cells(target) if cell.paper}
    rows: list[list[Cell]] = []
    for job in jobs:
        state = state_of(job, places)
        about = ("", "", "")
        if not isinstance(job, Times):
            about = job.recipe.data.data, job.recipe.network.model, str(job.recipe.optimisation.epochs)
        words = f"{state.words}; of another recipe: {'; '.join(state.differs)}" if state.differs else state.words
        rows.append([Text(job.name), *about, paper_text(paper.get(job.name)), Text(words)])
    headings = ("run", "data", "network", "epochs", "paper", "state")
    return fitting_table(console, headings, rows, drop=("data", "epochs", "network"))
