"""Beyond the paper: other iterations than in training, new objects and new viewpoints, as tables."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import mean

from experiments.cells import CROPS, TESTED_ITERATIONS, Cell
from experiments.results import Result
from experiments.tables import NOT_RUN, Results, doubts, error_text, trained_as
from torchcaps.runs.text import NOTHING, Table, percent


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
    for labels, seeds in by_seed(cells):
        found = [results.get(cell.job.name) for cell in seeds]
        for cell, one in zip(seeds, found, strict=True):
            training = percent(one.training[-1]) if one and one.training else NOTHING
            shown = [error_text(one) if one else NOT_RUN, share_text(one.crops_error if one else None), training]
            rows.append([*cell.labels, *shown, about(cell, one, results)])
        if is_mean := mean_text([one.error if one else None for one in found]):
            crops = mean_text([one.crops_error if one else None for one in found])
            rows.append([*labels, "mean", is_mean, crops or NOTHING, NOTHING, NOTHING])
    note = (
        "Both cameras; trained on the whole training split, the test split evaluated at the end, with the last "
        "weights. After \N{PLUS-MINUS SIGN} stands half the difference of the two seeds."
    )
    return Table(title, columns, rows, note)


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
        "With one iteration there is no routing: poses are means of votes. "
        "After \N{PLUS-MINUS SIGN} stands half the difference of the two seeds."
    )
    return Table(title, columns, rows, note)


def by_seed(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Cells that differ in their last label, the seed, together."""
    for labels, group in groupby(cells, key=lambda cell: cell.labels[:-1]):
        yield labels, list(group)


def mean_text(errors: Sequence[float | None]) -> str:
    """Of all seeds, with half of what they differ by; nothing where one is missing."""
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or len(known) < 2:
        return ""
    return f"{percent(mean(known))} \N{PLUS-MINUS SIGN} {50 * (max(known) - min(known)):.2f}"


def share_text(error: float | None) -> str:
    return NOTHING if error is None else percent(error)


def about(cell: Cell, result: Result | None, results: Results) -> str:
    """What a result is of, and why it may not be quite the cell's."""
    return NOTHING if result is None else "; ".join([trained_as(result), *doubts(cell, result, results)])
