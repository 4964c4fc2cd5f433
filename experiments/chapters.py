"""What the document says of each target."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.budgets import BUDGETS
from experiments.carry_over import iterations_table, objects_table, pairs_table, viewpoints_table
from experiments.cells import TIMES, TRIALS_PLACE, Experiments, Target
from experiments.claims import claims_table
from experiments.document import Chapter, Document, Made, Part
from experiments.figures import Gallery, LossCurves
from experiments.results import Result, read_results, read_values, usable
from experiments.story import iterations_drawing, learning_drawing, objects_drawing, toys_drawing, viewpoints_drawing
from experiments.tables import error_table, times_table
from experiments.trial_tables import trial_tables
from torchcaps.runs.text import count

NOTES, TRIED = "results-notes.md", "results-tried.md"  # written by hand: the story, and what was found by trials
REHEARSAL = "Rehearsal: these numbers mean nothing"
BUDGET_TITLES = {
    "quick": "Rehearsal",
    "short": "Short budget",
    "long": "Long budget",
    "full": "Full budget, the paper's 50 epochs",
}
TABLES: dict[Target, tuple[str, list[str]]] = {
    "table1": ("Table 1: smallNORB", ["method"]),
    "table2": ("Table 2: iterations, and the start of the matrices", ["method", "iterations", "std"]),
    "table3": ("Table 3: other sets", ["set", "method"]),
}


Chosen = Mapping[str, Mapping[str, Result]]  # budget -> the results by name


def make_document(results: Path, notes: Path, root: Path | None = None) -> Document:
    """Everything that is in the results' folder, with what stands in the notes.

    ``root`` is where the data sets are: on it depends which of them a rehearsal takes.
    """
    by_budget = {budget: read_results(results / budget) for budget in BUDGETS}
    trials = read_results(results / TRIALS_PLACE)
    real = [budget for budget in BUDGETS if budget != "quick" and by_budget[budget]]
    rehearsal = bool(by_budget["quick"]) and not (real or trials)
    shown = ["quick"] if rehearsal else real or ["short"]
    chosen = {budget: by_budget[budget] for budget in shown}
    trials = by_budget["quick"] if rehearsal else trials
    everything = [result for found in chosen.values() for result in found.values()]
    everything += [] if rehearsal else trials.values()
    prose = "" if rehearsal else read_notes(notes)
    learned = [Chapter(title="What we learned", prose=prose)] if prose else []
    chapters = Chapters(chosen, results, root)
    return Document(
        title=REHEARSAL if rehearsal else "Results",
        introduction=introduction(everything, rehearsal),
        chapters=[
            *learned,
            *(chapters.table(target) for target in TABLES),
            chapters.losses(),
            chapters.reconstructions(),
            chapters.claims(),
            chapters.iterations(),
            chapters.objects(),
            chapters.viewpoints(),
            Chapter(
                title="What was tried",
                text="Settings were chosen by the error on validation images; if the set records objects, these show "
                "objects not used in training. The test split was not evaluated.",
                prose="" if rehearsal else read_notes(notes.with_name(TRIED)),
                made=[
                    Made(
                        "python -m experiments trials",
                        [toys_drawing(trials), learning_drawing(trials), *trial_tables(trials)],
                    )
                ],
            ),
        ],
    )


def read_notes(path: Path) -> str:
    """What was written by hand, where there is something."""
    if not path.is_file():
        return ""
    with usable(path, "save it as text in UTF-8"):
        return path.read_text(encoding="utf-8").strip()


def introduction(results: list[Result], rehearsal: bool) -> list[str]:
    """What must be known of all numbers."""
    trials = [result for result in results if result.trial is not None]
    ensembles = [result for result in results if result.is_ensemble]
    runs = len(results) - len(trials) - len(ensembles)
    if rehearsal:
        first = "These runs have few images and few steps, to see that everything works from end to end."
    elif len(results) > len(trials):
        first = (
            "The paper's tables and figures, run again. Settings were chosen beforehand, on validation images; then "
            "each run was trained on the whole training split (those for new viewpoints: on the familiar ones), and "
            "the test split was evaluated at its end. "
            "Each number is one run with one seed, except for ensembles and means; another seed gives another number. "
            "Differences are ours minus the paper's, in percentage points."
        )
    else:
        first = "The paper's tables and figures, to be run again. None of them was yet"
        first += ": there are only trials, whose errors are those on validation images." if trials else "."
    numbers = {"run": runs, "ensemble": len(ensembles), "trial": len(trials)}
    counted = ", ".join(count(number, thing) for thing, number in numbers.items() if number)
    machines, data = sorted({result.machine for result in results}), sorted({result.data for result in results})
    found = f"{counted} on {' and '.join(machines)}; data: {', '.join(data)}." if results else ""
    made = (
        "Made by `python -m experiments --report` from the files in `experiments/results/`; "
        "no number in a table was typed by hand."
    )
    copy = ""
    if any("JPEG copy" in title for title in data):
        copy = "smallNORB here is a JPEG copy: its pixels are not quite those that the paper had."
    return [text for text in (first, " ".join(filter(None, [found, copy])), made) if text]


@dataclass(frozen=True)
class Chapters:
    """Those of the paper, each with tables and figures for each budget."""

    chosen: Chosen
    results: Path
    root: Path | None

    def made(self, target: Target, parts: Callable[[str, Experiments], list[Part]]) -> list[Made]:
        """What ``parts`` makes of each budget with which something was run (or of all), with the command for it."""
        runs = {budget: Experiments(BUDGETS[budget], self.root) for budget in self.chosen}
        names = {budget: {cell.job.name for cell in runs[budget].cells(target)} for budget in runs}
        begun = [budget for budget in runs if names[budget] & set(self.chosen[budget])]
        return [
            Made(f"python -m experiments {target} --budget {budget}", parts(budget, runs[budget]))
            for budget in begun or [budget for budget in runs if names[budget]]
        ]

    def table(self, target: Target) -> Chapter:
        """The errors; of table 1 also the times."""
        title, heads = TABLES[target]

        def parts(budget: str, runs: Experiments) -> list[Part]:
            table = error_table(BUDGET_TITLES[budget], heads, runs.cells(target), self.chosen[budget])
            timed = target == "table1" and (
                (self.results / budget / f"{TIMES}.json").is_file() or len(self.chosen) == 1
            )
            return [table, self.times(budget)] if timed else [table]

        return Chapter(title=title, made=self.made(target, parts))

    def times(self, budget: str) -> Part:
        path = self.results / budget / f"{TIMES}.json"
        values = read_values(path)
        with usable(path):
            return times_table(values)

    def losses(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            cells, found = runs.cells("losses"), self.chosen[budget]
            table = error_table(BUDGET_TITLES[budget], ["loss", "method"], cells, found)
            return [table, LossCurves(f"results-losses-{budget}", cells, found)]

        text = "Training with the spread loss and with the margin loss, as in the paper's figure."
        return Chapter(title="Losses", text=text, made=self.made("losses", parts))

    def reconstructions(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            cells = runs.cells("reconstructions")
            return [Gallery(BUDGET_TITLES[budget], f"results-{budget}", cells, self.chosen[budget])]

        return Chapter(
            title="Reconstructions",
            text="One test image of each class above the decoder's image from the winning capsule: the middle one of "
            "the class's images, for all methods the same.",
            made=self.made("reconstructions", parts),
        )

    def claims(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            return [claims_table(runs, self.chosen[budget], BUDGET_TITLES[budget])]

        return Chapter(title="Side claims", made=self.made("claims", parts))

    def iterations(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            cells, found = runs.cells("iterations"), self.chosen[budget]
            return [iterations_table(BUDGET_TITLES[budget], cells, found), iterations_drawing(cells, found, budget)]

        text = (
            "Beyond the paper: the paper's network with both cameras and batch normalisation, trained with two "
            "iterations of routing and tested with others."
        )
        return Chapter(title="Iterations in the test", text=text, made=self.made("iterations", parts))

    def objects(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            cells, found = runs.cells("objects"), self.chosen[budget]
            table = objects_table(BUDGET_TITLES[budget], cells, found)
            pairs = pairs_table(("network", "images"), cells, found)
            return [table, pairs, objects_drawing(cells, found, budget)]

        text = (
            "Beyond the paper: both cameras of smallNORB, and the network that did best on toys held out of training."
        )
        return Chapter(title="New objects", text=text, made=self.made("objects", parts))

    def viewpoints(self) -> Chapter:
        def parts(budget: str, runs: Experiments) -> list[Part]:
            cells, found = runs.cells("viewpoints"), self.chosen[budget]
            table = viewpoints_table(BUDGET_TITLES[budget], cells, found)
            pairs = pairs_table(("viewpoints differ in", "network"), cells, found)
            return [table, pairs, viewpoints_drawing(cells, found, budget)]

        text = "Beyond the paper: toys of the built-in set, seen from where the network has seen no toy before."
        return Chapter(title="New viewpoints", text=text, made=self.made("viewpoints", parts))
