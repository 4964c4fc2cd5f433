"""Tables of text, for a terminal and as markdown."""

from dataclasses import dataclass


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
