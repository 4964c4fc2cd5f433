"""The paper's tables with our numbers beside them."""

from collections.abc import Mapping
from typing import Any

from experiments.cells import LABELS, Cell
from experiments.results import Result
from experiments.states import differences_of, run_again
from torchcaps.bench.measure import key, ratio, spread
from torchcaps.bench.networks import MODES, PAPER, PLAIN
from torchcaps.bench.plan import CNN, HYBRID
from torchcaps.bench.report import machine_line, ratio_text, time_text
from torchcaps.runs.text import MINUS, NOTHING, Table, percent
from torchcaps.train.devices import DEFAULT_PRECISION

NOT_RUN = "not run"
Results = Mapping[str, Result]  # by name


def error_table(title: str, heads: list[str], cells: list[Cell], results: Results) -> Table:
    """For each cell: the paper's error where it has one, ours, the difference, and what ours is of."""
    has_paper = any(cell.paper is not None for cell in cells)
    columns = [*heads, *(["paper"] if has_paper else []), "ours", *(["difference"] if has_paper else []), "of"]
    rows = []
    for cell in cells:
        found = results.get(cell.job.name)
        ours = NOT_RUN if found is None else error_text(found)
        of = NOTHING if found is None else "; ".join([trained_as(found), *doubts(cell, found, results)])
        if has_paper:
            rows.append([*cell.labels, paper_text(cell.paper), ours, difference(found, cell.paper), of])
        else:
            rows.append([*cell.labels, ours, of])
    return Table(title, columns, rows)


def error_text(result: Result) -> str:
    """The test error, or that there is none."""
    return "failed: not finite" if result.error is None else percent(result.error)


def paper_text(error: float | None) -> str:
    """With the paper's digits."""
    return NOTHING if error is None else percent(error, 2 if error < 0.01 else 1)


def difference(result: Result | None, paper: float | None) -> str:
    """Ours minus the paper's, in percentage points."""
    if result is None or result.error is None or paper is None:
        return NOTHING
    return points(100 * (result.error - paper))


def points(difference: float) -> str:
    """A difference in percentage points."""
    return f"{difference:+.2f}".replace("-", MINUS)


def trained_as(result: Result) -> str:
    """Network, length, seeds and data of a result."""
    seeds = result.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"ensemble of seeds {', '.join(map(str, seeds))}"
    bits = "" if result.precision == DEFAULT_PRECISION else f", {result.precision}"
    return f"{result.recipe['model']}, {result.length}, {which}, {result.data}{bits}"


def doubts(cell: Cell, result: Result, results: Results) -> list[str]:
    """Why a result is not quite the cell's."""
    differs, changed = differences_of(cell.job, result), run_again(result, results)
    found = [f"of another recipe: {'; '.join(differs)}"] if differs else []
    return found + ([f"from before {', '.join(changed)} ran again"] if changed else [])


def times_table(times: Mapping[str, Any] | None) -> Table:
    """Times relative to the CNN's, ours and the paper's."""
    columns = ["method"]
    for mode in MODES:
        columns += [f"{mode}: paper", "ours", "ours, ms"]
    rows = []
    for method, label in LABELS.items():
        row = [label]
        for mode in MODES:
            of_paper = f"{PAPER[method][mode] / PAPER['cnn'][mode]:.1f}"
            row += [of_paper, *(our_times(times, method, mode, times["backends"][0]) if times else (NOT_RUN, NOTHING))]
        rows.append(row)
    title = "Time relative to the CNN"
    if not times:
        return Table(title, columns, rows)
    note = f"{HYBRID} against {CNN}, batch {times['batch']}, measured in turns in one process: median of the ratios "
    note += f"within a round (quartiles), and median (minimum) of the times. {machine_line(times['machine'])}. "
    plain = [our_times(times, "frem", mode, PLAIN)[0] for mode in MODES]
    note += f"The convolutions of {HYBRID} are the core's own, those of {CNN} PyTorch's; with PyTorch's in both, "
    note += f"FREM takes {plain[0]} of the CNN's time for inference, {plain[1]} for training. "
    return Table(title, columns, rows, f"{note}The paper's were measured on a GPU.")


def our_times(times: Mapping[str, Any], method: str, mode: str, backend: str) -> tuple[str, str]:
    """The ratio to the CNN, and the time."""
    seconds = times["seconds"]
    cnn = seconds[key("cnn", mode)]
    mine = cnn if method == "cnn" else seconds[key(backend, method, mode)]
    return ("1" if method == "cnn" else ratio_text(ratio(mine, cnn))), time_text(spread(mine))
