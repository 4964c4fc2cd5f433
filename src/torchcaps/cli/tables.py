"""Tables for a terminal. Names are ``Text``: rich takes brackets in strings for markup."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.classifier.metrics import figures_of_classes
from torchcaps.runs.text import Table as TextTable

WIDEST = 20  # classes in a matrix; more do not fit on a screen
FOLDED = 16  # characters of a run's name on a line, where there is no room for more
PAIRS = 15  # the most frequent mistakes, where there is no matrix

Cell = str | Text


def name_text(name: str | Path) -> Text:
    """A name as it is, but for what a terminal cannot print."""
    printable = str(name).encode("utf-8", "replace").decode()
    return Text("".join(c if c.isprintable() else "?" for c in printable), overflow="fold")


def fitting_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Table:
    """A table that fits the terminal: where it is too wide, the columns ``drop`` are left out, one after the other.

    Columns in ``right`` are aligned there. What is still too wide is folded, never cut.
    """
    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    if not drop or natural_width(table) <= console.width:
        return table
    kept = [place for place, heading in enumerate(headings) if heading != drop[0]]
    narrower = [[row[place] for place in kept] for row in rows]
    return fitting_table(console, [headings[place] for place in kept], narrower, right=right, drop=drop[1:])


def natural_width(table: Table) -> int:
    """The columns that a table takes where nothing is wrapped."""
    return Console(width=100_000).measure(table).maximum


def percent(wrong: int, images: int) -> str:
    """A share of images as an error."""
    return f"{100 * wrong / images:.2f} %" if images else "-"


def interval_text(evaluation: Evaluation) -> str:
    """The 95 % interval of an error."""
    low, high = evaluation.interval
    return f"{100 * low:.2f} to {100 * high:.2f} %"


def error_text(evaluation: Evaluation) -> str:
    """An error with its interval."""
    return f"{100 * evaluation.error:.2f} % (95 % interval: {interval_text(evaluation)})"


def class_table(console: Console, evaluation: Evaluation) -> Table:
    """How well each class is found, and the class that it is most often mistaken for."""
    mistakes = evaluation.confusion.clone().fill_diagonal_(0)  # [true class, predicted class]
    rows: list[list[Cell]] = []
    for label, found in enumerate(figures_of_classes(evaluation)):
        other = name_text(evaluation.classes[int(mistakes[label].argmax())]) if found.wrong else ""
        counts = (f"{found.images:,}", f"{found.wrong:,}", percent(found.wrong, found.images))
        shares = (
            "-" if share is None else f"{100 * share:.2f} %" for share in (found.precision, found.recall, found.f1)
        )
        rows.append([name_text(found.name), *counts, *shares, other])
    numbers = ("images", "wrong", "error", "precision", "recall", "F1")
    headings = ("class", *numbers, "mistaken for")
    # What is left out first follows from the rest, or is in the confusion matrix.
    drop = ("wrong", "images", "error", "mistaken for", "F1")
    return fitting_table(console, headings, rows, right=numbers, drop=drop)


def confusion_table(console: Console, evaluation: Evaluation) -> Table:
    """Counts by true and by predicted class; the most frequent mistakes where that does not fit."""
    classes = evaluation.classes
    numbers = [str(number) for number in range(len(classes))]
    rows: list[list[Cell]] = []
    for label, counts in enumerate(evaluation.confusion.tolist()):
        cells = [
            Text(f"{count}" if count else ".", style="bold" if label == column else "")
            for column, count in enumerate(counts)
        ]
        rows.append([name_text(classes[label]), numbers[label], *cells])
    table = fitting_table(console, ("true class", "", *numbers), rows, right=numbers)
    title = "Confusion matrix"
    if len(classes) > WIDEST or natural_width(table) > console.width:
        table, title = _mistakes(console, evaluation), "Most common confusions"
    table.title, table.title_justify = title, "left"
    return table


def _mistakes(console: Console, evaluation: Evaluation) -> Table:
    mistakes = evaluation.confusion.clone().fill_diagonal_(0).flatten()  # [classes * classes]
    rows: list[list[Cell]] = []
    for place in mistakes.argsort(descending=True, stable=True)[:PAIRS].tolist():
        truth, prediction = divmod(place, len(evaluation.classes))
        if count := int(mistakes[place]):
            names = (name_text(evaluation.classes[label]) for label in (truth, prediction))
            rows.append([*names, f"{count:,}"])
    return fitting_table(console, ("true class", "predicted class", "images"), rows, right=("images",))


def run_table(console: Console, runs: Sequence[Path], each: Sequence[Evaluation], together: Evaluation) -> Table:
    """The error of each run, and of all together."""
    named: list[tuple[Cell, Evaluation]] = [(name_text(run), found) for run, found in zip(runs, each, strict=True)]
    rows: list[list[Cell]] = [
        [name, percent(found.wrong, len(found.label)), interval_text(found)]
        for name, found in (*named, ("together", together))
    ]
    numbers = ("error", "95 % interval")
    return fitting_table(console, ("run", *numbers), rows, right=numbers)


def side_by_side(
    console: Console, names: Sequence[str], *parts: Mapping[str, Sequence[str]], least: int = 2
) -> list[Table]:
    """A column for each name and a row for each fact; several tables where that is wider than the terminal."""
    parted = [slice(start, start + least) for start in range(0, len(names), least)]
    for columns in range(len(names), least, -1):
        which = [slice(start, start + columns) for start in range(0, len(names), columns)]
        # Long names may be folded, as rich does with the widest columns first.
        folded = [name[:FOLDED] for name in names]
        if all(natural_width(_columns(folded, parts, part)) <= console.width for part in which):
            parted = which
            break
    return [_columns(names, parts, part) for part in parted]


def _columns(names: Sequence[str], parts: Sequence[Mapping[str, Sequence[str]]], which: slice) -> Table:
    table = Table()
    table.add_column("")
    for name in names[which]:
        table.add_column(name_text(name), justify="right", overflow="fold")
    for part in parts:
        for fact, values in part.items():
            table.add_row(name_text(fact.replace("_", " ")), *map(name_text, values[which]))
        table.add_section()
    return table


def show(console: Console, table: TextTable) -> None:
    """A table of text on a terminal."""
    rich_table = Table(*table.columns, title=table.title, caption=table.note or None, title_justify="left")
    rich_table.caption_justify = "left"
    heads = [row[0] for row in table.rows]
    grouped = len(set(heads)) < len(heads)  # rows that belong together
    for row, following in zip(table.rows, [*heads[1:], None], strict=True):
        rich_table.add_row(*map(Text, row), end_section=grouped and row[0] != following)
    console.print(rich_table)
