"""Tables: the same ones on screen, as markdown and as HTML."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from torchcaps.report.markup import Html, join, lead, scroll_box, tag


@dataclass(frozen=True)
class Table:
    """Cells of text; rows that belong together have the same first cell."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""

    def as_markdown(self) -> str:
        """The table and its note; the title is the reader's to write."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.note}" if self.note else table

    def as_html(self) -> Html:
        """The same for a page."""
        head = tag("tr", *(tag("th", name, scope="col") for name in self.columns))
        rows = [tag("tr", *(tag("td", cell) for cell in row)) for row in self.rows]
        table = tag("table", tag("thead", head), tag("tbody", *rows), class_="results")
        note = lead(self.note) if self.note else Html()
        return join([tag("h3", self.title), scroll_box(self.title, table), note])


def show(console: Console, table: Table) -> None:
    """On a terminal."""
    rich_table = RichTable(*table.columns, title=table.title, caption=table.note or None, title_justify="left")
    rich_table.caption_justify = "left"
    heads = [row[0] for row in table.rows]
    grouped = len(set(heads)) < len(heads)  # rows that belong together
    for row, following in zip(table.rows, [*heads[1:], None], strict=True):
        rich_table.add_row(*map(Text, row), end_section=grouped and row[0] != following)
    console.print(rich_table)
