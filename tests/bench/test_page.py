from pathlib import Path

from torchcaps.cli.bench import write_markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_what_was_measured() -> None:
    shown = (DOCS / "performance.md").read_text().split("<!-- torchcaps bench --markdown -->\n")[1]
    assert shown.strip() == write_markdown(DOCS / "bench.json").strip()
