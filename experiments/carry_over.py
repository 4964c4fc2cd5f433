"""Beyond the paper: other iterations than in training, new objects and new viewpoints, as tables."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import mean, stdev

from experiments.cells import CROPS, LABELS, TESTED_ITERATIONS, Cell, Ensemble, Run
from experiments.results import Result
from experiments.tables import NOT_RUN, Results, doubts, error_text, points, trained_as
from torchcaps.runs.text import NOTHING, Table, percent

SPREAD = "\N{PLUS-MINUS SIGN} is half the range of the seeds."
CAPSULES = rf"^{LABELS['frem']}(, \w+caps\d+)?"  # where the CNN's label has its name
FEWEST_PAIRS = 3
STUDENT_95 = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # for two degrees of freedom, three, ...


def iterations_table(title: str, cells: list[Cell], results: Results) -> Table:
    """Networks that were trained with two iterations, tested with others."""
    columns = ["method", *(f"tested with {k}" for k in TESTED_ITERATIONS), "of"]
    rows = []
    for cell in cells:
        found = results.get(cell.job.name)
        errors = found.iterations_error if found else {}
        otherwise = NOT_RUN if found is None else error_text(found) if found.failed else NOT_RUN
        cells_of = [percent(errors[k]) if k in errors else otherwise for k in TESTED_ITERATIONS]
        rows.append([*cell.labels, *cells_of, about(cell, found, results)])
    return Table(title, columns, rows, "Test errors. Each network was trained once, with two iterations.")


def objects_table(title: str, cells: list[Cell], results: Results) -> Table:
    """smallNORB's test toys, which are not in training: one crop, and the mean over several."""
    columns = ["network", "images", "seed", "test error", f"{CROPS} crops", "training error", "of"]
    rows = []
    for labels, of_labels in by_seed(cells):
        for cell in of_labels:
            one = results.get(cell.job.name)
            training = percent(one.training[-1]) if one and one.training else NOTHING
            shown = [error_text(one) if one else NOT_RUN, share_text(one.crops_error if one else None), training]
            rows.append([*cell.labels, *shown, about(cell, one, results)])
        seeds = [(cell.job, results.get(cell.job.name)) for cell in of_labels if isinstance(cell.job, Run)]
        if is_mean := mean_text([one.error if one else None for _, one in seeds]):
            crops = mean_text([one.crops_error if one else None for run, one in seeds if run.crops > 1])
            rows.append([*labels, "mean", is_mean, crops or NOTHING, NOTHING, NOTHING])
    note = "Trained on the whole training split, the test split evaluated at the end, with the last weights. " + SPREAD
    if any(isinstance(cell.job, Run) and cell.job.crops > 1 for cell in cells):
        note += f" Only the first two seeds are also tested with {CROPS} crops."
    if any(isinstance(cell.job, Ensemble) for cell in cells):
        note += " Of seeds together, the activations are averaged."
    return Table(title, columns, rows, note)


def pairs_table(columns: Sequence[str], cells: Sequence[Cell], results: Results) -> Table:
    """FREM minus the CNN with the same seed, so with the same batches, crops and mixed images.

    ``columns`` name the cells' labels, but for the last one, the seed.
    """
    known = {cell.labels: results[cell.job.name] for cell in cells if cell.job.name in results}
    errors = {labels: 100 * one.error for labels, one in known.items() if one.error is not None}
    rows = []
    for labels, seeds in by_seed([cell for cell in cells if isinstance(cell.job, Run)]):
        twin = tuple(re.sub(CAPSULES, LABELS["cnn"], label) for label in labels)
        both = [
            (errors.get((*labels, seed)), errors.get((*twin, seed))) for seed in (cell.labels[-1] for cell in seeds)
        ]
        pairs = [frem - cnn for frem, cnn in both if frem is not None and cnn is not None]
        if twin != labels and pairs:
            interval = NOTHING
            if len(pairs) >= FEWEST_PAIRS:
                interval = "{} to {}".format(*map(points, interval_of_seeds(pairs)))
            rows.append([*labels, ", ".join(map(points, pairs)), points(mean(pairs)), interval])
    note = (
        "In percentage points, one per seed. The interval is of Student's t, from three pairs on: what other seeds "
        "would do, on the same toys."
    )
    return Table("FREM minus the CNN", [*columns, "by seed", "mean", "95 % interval"], rows, note)


def interval_of_seeds(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of three to ten normal values."""
    half = STUDENT_95[len(values) - FEWEST_PAIRS] * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def viewpoints_table(title: str, cells: list[Cell], results: Results) -> Table:
    """turntable's test toys from viewpoints that are in training, and from others."""
    columns = ["viewpoints differ in", "network", "seed", "familiar viewpoints", "new viewpoints", "of"]
    rows = []
    for labels, seeds in by_seed(cells):
        found = [results.get(cell.job.name) for cell in seeds]
        for cell, one in zip(seeds, found, strict=True):
            familiar = share_text(one.familiar_error if one else None)
            rows.append([*cell.labels, familiar, error_text(one) if one else NOT_RUN, about(cell, one, results)])
        if is_mean := mean_text([one.error if one else None for one in found]):
            familiar = mean_text([one.familiar_error if one else None for one in found]) or NOTHING
            rows.append([*labels, "mean", familiar, is_mean, NOTHING])
    note = (
        "Trained on six azimuths or on the three lowest elevations (Hinton et al. 2018); test toys are always new. "
        f"With one iteration there is no routing: poses are means of votes. {SPREAD}"
    )
    return Table(title, columns, rows, note)


def by_seed(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Cells that differ in their last label, the seed, together."""
    for labels, group in groupby(cells, key=lambda cell: cell.labels[:-1]):
        yield labels, list(group)


def mean_text(errors: Sequence[float | None]) -> str:
    """Of all seeds, with half of what they span; nothing where one is missing."""
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or len(known) < 2:
        return ""
    return f"{percent(mean(known))} \N{PLUS-MINUS SIGN} {50 * (max(known) - min(known)):.2f}"


def share_text(error: float | None) -> str:
    return NOTHING if error is None else percent(error)


def about(cell: Cell, result: Result | None, results: Results) -> str:
    """What a result is of, and why it may not be quite the cell's."""
    return NOTHING if result is None else "; ".join([trained_as(result), *doubts(cell, result, results)])
