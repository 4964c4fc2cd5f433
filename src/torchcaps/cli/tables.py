"""What an evaluation found, as tables for a terminal. Names are ``Text``: rich takes brackets in strings for markup."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.runs.tables import Table as TextTable

WIDEST = 16  # classes in a matrix; more do not fit on a screen
PAIRS = 15  # the most frequent mistakes, where there is no matrix


def name_text(name: str | Path) -> Text:
    """A name as it is, but for what a terminal cannot print."""
    printable = str(name).encode("utf-8", "replace").decode()
    return Text("".join(c if c.isprintable() else "?" for c in printable), overflow="fold")


def percent(wrong: int, images: int) -> str:
    """A share of images as an error."""
    return f"{100 * wrong / images:.2f} %" if images else "-"


def class_table(evaluation: Evaluation) -> Table:
    """The error of each class, and what it is mostly taken for."""
    table = Table("class")
    for heading in ("images", "wrong", "error"):
        table.add_column(heading, justify="right")
    table.add_column("mostly taken for")
    mistakes = evaluation.confusion.clone().fill_diagonal_(0)  # [true class, predicted class]
    for label, (name, images, wrong) in enumerate(evaluation.by_class()):
        taken_for = name_text(evaluation.classes[int(mistakes[label].argmax())]) if wrong else Text("")
        table.add_row(name_text(name), f"{images:,}", f"{wrong:,}", percent(wrong, images), taken_for)
    return table


def confusion_table(evaluation: Evaluation) -> Table:
    """Counts of what was taken for what, a row for each true class; of many classes the most frequent mistakes."""
    confusion = evaluation.confusion
    if len(evaluation.classes) > WIDEST:
        return _mistakes(evaluation)
    table = Table("true class", "")
    for number in range(len(confusion)):
        table.add_column(str(number), justify="right")
    for number, (name, row) in enumerate(zip(evaluation.classes, confusion.tolist(), strict=True)):
        counts = [
            Text(f"{count}" if count else ".", style="bold" if number == column else "")
            for column, count in enumerate(row)
        ]
        table.add_row(name_text(name), str(number), *counts)
    return table


def _mistakes(evaluation: Evaluation) -> Table:
    table = Table("class", "is taken for")
    table.add_column("images", justify="right")
    mistakes = evaluation.confusion.clone().fill_diagonal_(0).flatten()  # [classes * classes]
    for place in mistakes.argsort(descending=True, stable=True)[:PAIRS].tolist():
        truth, prediction = divmod(place, len(evaluation.classes))
        if count := int(mistakes[place]):
            names = (name_text(evaluation.classes[label]) for label in (truth, prediction))
            table.add_row(*names, f"{count:,}")
    return table


def run_table(runs: Sequence[Path], each: Sequence[Evaluation], together: Evaluation) -> Table:
    """The error of each run beside that of all together."""
    table = Table("run")
    table.add_column("error", justify="right")
    for run, found in zip(runs, each, strict=True):
        table.add_row(name_text(run), percent(found.wrong, len(found.label)))
    table.add_row("together", percent(together.wrong, len(together.label)))
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
