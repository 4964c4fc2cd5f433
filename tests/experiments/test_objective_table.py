import re
from pathlib import Path

from experiments.tools.objective_table import courses, markdown

PAGE = Path(__file__).parents[2] / "docs" / "method.md"


def test_the_page_shows_what_the_command_prints() -> None:
    shown = PAGE.read_text().split("<!-- python -m experiments.tools.objective_table -->\n")[1].split("\n\n")[0]
    # the share of fields may move by one field where a fall is at the edge of rounding
    numbers = re.compile(r"[\d.]+%")
    assert numbers.sub("", shown) == numbers.sub("", markdown())


def test_every_method_ends_above_its_start() -> None:
    for course in courses():
        assert course.values[-1] > course.values[0], course
