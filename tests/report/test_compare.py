"""Runs side by side: what differs, who is right where, and the page that shows it."""

import re
from pathlib import Path
from typing import Any

import torch

from torchcaps.classifier import Evaluation
from torchcaps.classifier.statistics import mcnemar
from torchcaps.data.types import Split
from torchcaps.report.compare import MOST_IMAGES, SIDE, comparison_page, write_comparison
from torchcaps.report.comparison import Compared, Comparison, disagreements, verdict
from torchcaps.runs.run import Run

CLASSES = ("ant", "<b>ee", "cat")


def compared(name: str, said: list[int], label: list[int], *, rows: list[Any] | None = None, **fields: Any) -> Compared:
    """A run that predicts these classes, the later ones more surely."""
    sureness = torch.linspace(0.4, 0.9, len(said))
    activation = torch.nn.functional.one_hot(torch.tensor(said), len(CLASSES)) * sureness[:, None]
    evaluation = Evaluation(classes=CLASSES, label=torch.tensor(label), activation=activation)
    recipe = {"name": name, "data": {"data": "fruit"}, "optimisation": {"rate": 0.001, **fields}}
    return Compared(name, Run(card={"recipe": recipe}, result={"seconds": 90.0}, rows=rows or []), 1234, evaluation)


def images(count: int, side: int = 8, files: tuple[Path, ...] = ()) -> Split:
    pixels = torch.randint(0, 256, (count, 1, side, side), dtype=torch.uint8)
    return Split(pixels, torch.zeros(count, dtype=torch.int64), files=files)


def pair(**options: Any) -> Comparison:
    """One is right on images 0, 1, 2 and 5, two on 0, 3 and 5; both are wrong on 4."""
    label = [0, 1, 2, 0, 1, 2]
    rows = [{"step": k, "epoch": k, "output_loss": 1 / k, "validation_error": 0.5} for k in (1.0, 2.0, 3.0, 4.0)]
    one = compared("one", [0, 1, 2, 1, 0, 2], label, rows=rows, epochs=3)
    two = compared("two", [0, 0, 0, 0, 2, 2], label, epochs=4, routing="em")
    return Comparison([one, two], "/somewhere/fruit", "test", images(6, **options))


def test_settings_that_differ() -> None:
    assert pair().settings == {"epochs": [3, 4], "routing": [None, "em"]}


def test_who_is_right_where() -> None:
    first, second = disagreements(pair())
    assert (first.title, first.places.tolist()) == ("one is right, two is wrong", [2, 1])  # the surest mistake first
    assert (second.title, second.places.tolist()) == ("two is right, one is wrong", [3])


def test_three_runs() -> None:
    one, two = pair().runs
    three = compared("three", [1, 1, 0, 1, 1, 2], [0, 1, 2, 0, 1, 2])
    comparison = Comparison([one, two, three], "fruit", "test", images(6))
    found = {one.title: one.places.tolist() for one in disagreements(comparison)}
    assert found == {
        "Only one is right": [2],
        "Only two is right": [3],
        "Only three is right": [4],
        "Only one is wrong": [],
        "Only two is wrong": [1],
        "Only three is wrong": [0],
    }
    assert comparison.mcnemar is None
    assert "McNemar" not in comparison_page(comparison)


def test_mcnemar_in_words() -> None:
    found = pair().mcnemar
    assert found is not None
    assert (found.only_first, found.only_second, found.p) == (2, 1, 1.0)
    says = verdict(["one", "two"], found)
    assert says.startswith("one alone is right on 2 images, two alone on 1. ")
    assert says.endswith("(McNemar's test, exact binomial): this does not show that either is better.")
    assert verdict(["one", "two"], mcnemar(1, 12)).endswith("two is better than one on images like these.")
    assert verdict(["one", "two"], mcnemar(12, 1)).endswith("one is better than two on images like these.")
    assert "probability of less than 0.0001 (McNemar's test, chi-squared 48.02, continuity-corrected)" in verdict(
        ["a", "b"], mcnemar(0, 50)
    )
    assert "on the same images" in verdict(["one", "two"], mcnemar(0, 0))


def test_the_page(tmp_path: Path) -> None:
    there = tmp_path / "a & b.png"
    there.touch()
    files = (*(tmp_path / "gone" / f"{number}.png" for number in range(3)), there, *[tmp_path / "other.png"] * 2)
    page = comparison_page(pair(files=files))
    assert "<h1>2 runs on fruit</h1>" in page
    assert "/somewhere" not in page
    assert re.findall(r'<section id="(\w+)">', page) == ["results", "settings", "curves", "images"]
    assert "one is right, two is wrong: 2 images" in page
    assert "two is right, one is wrong: 1 image<" in page
    assert f'<a href="{there.as_uri()}">a &amp; b.png</a>' in page
    assert re.search(r'<p class="file" title="[^"]*gone/2.png">2.png</p>', page)
    assert page.count('src="data:image/png;base64,') == page.count("<img") == 3
    assert "&lt;b&gt;ee" in page
    assert "<b>ee" not in page
    assert page.count("<svg") == 2 + 2  # intervals; curves of the losses and validation errors
    assert "having no metrics.csv: two." in page
    assert not re.search(r'(src|href)="https?:', page)


def test_images_without_files_and_nothing_to_show() -> None:
    assert "test image 3" in comparison_page(pair())
    same = Comparison([pair().runs[0], pair().runs[0]._replace(name="again")], "fruit", "test", images(6))
    page = comparison_page(same)
    assert "The runs have the same settings." in page
    assert "None: the runs are right, and wrong, on the same images." in page
    assert "None of the runs has a metrics.csv" in comparison_page(
        same._replace(runs=[run._replace(run=run.run.__class__(card={}, result={}, rows=[])) for run in same.runs])
    )


def test_many_large_images() -> None:
    """Not more than 24 in each direction, not larger than they are shown."""
    label = [0] * 60
    runs = [compared("one", [0] * 30 + [1] * 30, label), compared("two", [1] * 30 + [0] * 30, label)]
    page = comparison_page(Comparison(runs, "fruit", "test", images(60, side=200)))
    assert page.count("<img") == 2 * MOST_IMAGES
    assert page.count(f'width="{SIDE}" height="{SIDE}"') == 2 * MOST_IMAGES
    assert "one is right, two is wrong: 30 images" in page


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    path = write_comparison(pair(), tmp_path / "new" / "page.html")
    assert [found.name for found in path.parent.iterdir()] == ["page.html"]
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_colours_of_many_runs() -> None:
    one = pair().runs[0]
    runs = [one._replace(name=f"run {number}") for number in range(8)]
    page = comparison_page(Comparison(runs, "fruit", "test", images(6)))
    assert 'class="a broken"' in page
    assert 'class="b broken"' in page
