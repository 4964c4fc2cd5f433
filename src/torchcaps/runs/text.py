"""Numbers and tables as people read them."""

import math
from dataclasses import dataclass
from typing import Any

SPACE = "\N{NO-BREAK SPACE}"
NOTHING = "\N{EN DASH}"  # where a value is missing
MINUS, TIMES, SIGMA = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{GREEK SMALL LETTER SIGMA}"


def percent(share: float, digits: int = 2) -> str:
    """With a space that keeps the number and its sign on one line.

    >>> percent(0.0987).replace(SPACE, " ")
    '9.87 %'
    """
    return f"{100 * share:.{digits}f}{SPACE}%"


def short(value: float) -> str:
    """Three digits, without zeros that say nothing.

    >>> [short(value) for value in (0, 0.25, 1500, 0.00002, 12345678)]
    ['0', '0.25', '1,500', '2e-5', '12,300,000']
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 1000:
        return f"{rounded:,.0f}"
    if abs(rounded) >= 0.001:
        return f"{rounded:.6f}".rstrip("0").rstrip(".")
    digits, power = f"{rounded:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def count(number: int, thing: str, things: str = "") -> str:
    """
    >>> count(1, "class", "classes"), count(2400, "image")
    ('1 class', '2,400 images')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def duration(seconds: float) -> str:
    """
    >>> [duration(value) for value in (4.21, 161, 7384)]
    ['4.2 s', '2 min 41 s', '2 h 3 min']
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"


def setting(value: Any) -> str:
    """A value of a recipe, as JSON has it.

    >>> [setting(value) for value in (True, 6e-3, 3, "frem", [2, 1], {"kernel": "gaussian"})]
    ['yes', '0.006', '3', 'frem', '2, 1', 'kernel gaussian']
    """
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(setting, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {setting(one)}" for name, one in value.items())
    return str(value)


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
