"""What the document says of each target."""

from pathlib import Path

from torchcaps.report.numbers import count
from torchcaps.reproduce.budgets import BUDGETS
from torchcaps.reproduce.cells import TRIALS_PLACE, Experiments, Target
from torchcaps.reproduce.claims import claims_table
from torchcaps.reproduce.document import Chapter, Document, Part
from torchcaps.reproduce.figures import Gallery, LossCurves
from torchcaps.reproduce.results import Result, read_results, read_values
from torchcaps.reproduce.tables import error_table, times_table, trials_table

NOTES = "results-notes.md"
REHEARSAL = "Rehearsal: these numbers mean nothing"
BUDGET_TITLES = {"quick": "Rehearsal", "short": "Short budget", "full": "Full budget, the paper's 50 epochs"}
TABLES: dict[Target, tuple[str, list[str]]] = {
    "table1": ("Table 1: smallNORB", ["method"]),
    "table2": ("Table 2: iterations, and the deviation of the matrices", ["method", "iterations", "deviation"]),
    "table3": ("Table 3: other sets", ["set", "method"]),
}


def make_document(results: Path, notes: Path) -> Document:
    """Everything that is in the results' folder, with what stands in the notes."""
    by_budget = {budget: read_results(results / budget) for budget in BUDGETS}
    trials = read_results(results / TRIALS_PLACE)
    rehearsal = bool(by_budget["quick"]) and not (by_budget["short"] or by_budget["full"] or trials)
    shown = ["quick"] if rehearsal else [b for b in ("short", "full") if by_budget[b]] or ["short"]
    chosen = {budget: by_budget[budget] for budget in shown}
    trials = by_budget["quick"] if rehearsal else trials
    everything = [result for found in chosen.values() for result in found.values()]
    everything += [] if rehearsal else trials.values()
    prose = notes.read_text(encoding="utf-8").strip() if notes.is_file() and not rehearsal else ""
    learned = [Chapter(identifier="learned", title="What we learned", prose=prose)] if prose else []
    return Document(
        title=REHEARSAL if rehearsal else "Results",
        introduction=introduction(everything, rehearsal),
        chapters=[
            *learned,
            *(table_chapter(target, chosen, results) for target in TABLES),
            losses_chapter(chosen),
            reconstructions_chapter(chosen),
            claims_chapter(chosen),
            Chapter(
                identifier="trials",
                title="What was tried",
                text="Settings were chosen by the error on validation images, which are of objects that are not in "
                "training where the set knows them. The test split was not evaluated. Made by",
                command="torchcaps reproduce trials",
                parts=[trials_table(trials)],
            ),
        ],
    )


def introduction(results: list[Result], rehearsal: bool) -> list[str]:
    """What must be known of all numbers."""
    machines = sorted({str(result.values["machine"]) for result in results})
    data = sorted({result.data for result in results})
    if rehearsal:
        first = "These runs have few images and few steps, to see that everything works from end to end."
    else:
        first = (
            "The paper's tables and figures, run again. Settings were chosen beforehand, on validation images; then "
            "each run was trained on the whole training split, and the test split was evaluated once, at its end. "
            "One run, one seed for each number, but for ensembles: what another seed would change is not known. "
            "Differences are ours less the paper's, in percentage points."
        )
    found = f"{count(len(results), 'result')} on {', '.join(machines)}; data: {', '.join(data)}." if results else ""
    made = "Made by `torchcaps reproduce --report` from the files in `results/`; no number here was typed by hand."
    copy = ""
    if any("JPEG copy" in title for title in data):
        copy = "smallNORB here is a JPEG copy: its pixels are not quite those that the paper had."
    return [text for text in (first, " ".join(filter(None, [found, copy])), made) if text]


def table_chapter(target: Target, chosen: dict[str, dict[str, Result]], results: Path) -> Chapter:
    """A table of errors for each budget; of table 1 also the times."""
    title, heads = TABLES[target]
    parts = []
    for budget, found in chosen.items():
        parts.append(error_table(BUDGET_TITLES[budget], heads, Experiments(BUDGETS[budget]).cells(target), found))
        if target == "table1":
            parts.append(times_table(read_values(results / budget / "times.json")))
    return Chapter(identifier=target, title=title, text="Made by", command=command(target, chosen), parts=parts)


def losses_chapter(chosen: dict[str, dict[str, Result]]) -> Chapter:
    parts: list[Part] = []
    for budget, found in chosen.items():
        cells = Experiments(BUDGETS[budget]).cells("losses")
        parts += [
            error_table(BUDGET_TITLES[budget], ["loss", "method"], cells, found),
            LossCurves("", f"results-losses-{budget}", cells, found),
        ]
    text = "Training with the spread loss and with the margin loss, as the paper's figure has it. Made by"
    return Chapter(identifier="losses", title="Losses", text=text, command=command("losses", chosen), parts=parts)


def reconstructions_chapter(chosen: dict[str, dict[str, Result]]) -> Chapter:
    parts = [
        Gallery(
            BUDGET_TITLES[budget], f"results-{budget}", Experiments(BUDGETS[budget]).cells("reconstructions"), found
        )
        for budget, found in chosen.items()
    ]
    return Chapter(
        identifier="reconstructions",
        title="Reconstructions",
        text="One test image of each class above what the decoder makes of the capsule that won: the middle one of the "
        "class's images, for all methods the same. Made by",
        command=command("reconstructions", chosen),
        parts=parts,
    )


def claims_chapter(chosen: dict[str, dict[str, Result]]) -> Chapter:
    parts = [
        claims_table(Experiments(BUDGETS[budget]), found, BUDGET_TITLES[budget]) for budget, found in chosen.items()
    ]
    title = "Side claims"
    return Chapter(identifier="claims", title=title, text="Made by", command=command("claims", chosen), parts=parts)


def command(target: str, chosen: dict[str, dict[str, Result]]) -> str:
    """What makes a chapter's numbers."""
    return f"torchcaps reproduce {target} --budget {'|'.join(chosen)}"
