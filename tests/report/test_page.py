import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch

from torchcaps.classifier import Evaluation
from torchcaps.errors import UserError
from torchcaps.report import write_report
from torchcaps.report.capsules import STEPS, vary
from torchcaps.report.charts import WIDTH, Series, line_chart
from torchcaps.report.likeness import Likeness, compare, squared_error_of_mean
from torchcaps.report.links import address_from, shown_name
from torchcaps.report.markup import VOID, caption
from torchcaps.report.samples import surest
from torchcaps.runs.run import read_run

ALWAYS = ["losses", "errors", "confusion", "mistakes", "configuration"]
Make = Callable[..., Any]


class Page(HTMLParser):
    """What a page holds; raises where it is not well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[tuple[tuple[str, ...], int, str]] = []  # open tags, index of the innermost element, text
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"<{tag}> says {names}"
        self.elements.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append((tuple(self.open), len(self.elements) - 1, data))

    def all(self, tag: str, style: str | None = None) -> list[dict[str, str]]:
        found = [attributes for name, attributes in self.elements if name == tag]
        return [one for one in found if style is None or style in one.get("class", "").split()]

    def sections(self) -> list[str]:
        return [section["id"] for section in self.all("section")]

    def words(self) -> str:
        return " ".join(text for tags, _, text in self.text if "style" not in tags)

    def text_of(self, tag: str, style: str) -> list[tuple[dict[str, str], str]]:
        """Elements with the text that is directly in them."""
        wanted = {i for i, (name, a) in enumerate(self.elements) if name == tag and style in a.get("class", "").split()}
        return [(self.elements[i][1], text) for tags, i, text in self.text if i in wanted and tags[-1] == tag]


def page_of(run: Any) -> Page:
    path = write_report(run.folder, run.classifier, run.test, run.evaluation)
    assert path == run.folder / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    check_is_alone(page, text)
    return page


def check_is_alone(page: Page, text: str) -> None:
    assert "://" not in text.replace("file://", "")
    assert "@import" not in text
    assert "url(" not in text
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object")
        assert tag != "script" or not attributes  # our own, in the page
        assert attributes.get("src", "data:").startswith("data:image/png;base64,") or "src" not in attributes
        assert attributes.get("href", "#").startswith("#") or attributes["class"] == "file"
    targets = {section["id"] for section in page.all("section")}
    assert {link["href"][1:] for link in page.all("a") if link["href"].startswith("#")} == targets
    assert not re.search(r"\b(nan|inf)\b", page.words(), re.IGNORECASE)


def test_a_network_with_decoder(make_run: Make) -> None:
    run = make_run()
    page = page_of(run)
    assert page.sections() == [*ALWAYS[:3], "reconstructions", "poses", "routing", *ALWAYS[3:]]
    assert len(page.all("svg")) == 4
    assert not page.all("script")
    assert all(image["alt"] for image in page.all("img"))
    assert len(page.all("div", "dimension")) == 16 + 2  # and the scales
    words = page.words()
    assert "The reconstructions show" in words
    for said in ("hybrid32 with FREM routing on fruit", "2 min 41 s", "a small one", "learning rate", "0.002"):
        assert said in words
    assert f"{100 * run.evaluation.error:.2f}\N{NO-BREAK SPACE}%" in words
    assert not list(run.folder.glob(".*"))


def test_without_decoder(make_run: Make) -> None:
    page = page_of(make_run(decoder=False))
    assert page.sections() == [*ALWAYS[:3], "reconstructions", "routing", *ALWAYS[3:]]
    assert len(page.all("svg")) == 3
    assert "without a decoder" in page.words()


def test_without_capsules(make_run: Make) -> None:
    page = page_of(make_run(model="cnn32"))
    assert page.sections() == [*ALWAYS[:3], "capsules", *ALWAYS[3:]]
    assert "cnn32 has no capsules" in page.words()
    assert "margin" not in page.words()


@pytest.mark.parametrize("channels", [2, 3])
def test_colour_and_stereo(make_run: Make, channels: int) -> None:
    page = page_of(make_run(channels=channels))
    assert ("Only the first of an image" in page.words()) == (channels == 2)


def test_without_validation(make_run: Make) -> None:
    page = page_of(make_run(validation=False))
    assert "no validation images" in page.words()
    assert "validation" not in [text.strip() for _, text in page.text_of("span", "b")]


@pytest.mark.parametrize("epochs", [0, 1])
def test_few_rows(make_run: Make, epochs: int) -> None:
    page = page_of(make_run(epochs=epochs))
    assert len(page.all("svg")) == (4 if epochs else 1)


def test_rows_that_are_broken_are_left_out(make_run: Make) -> None:
    run = make_run()
    path = run.folder / "metrics.csv"
    path.write_text(path.read_text() + "70,5.0,9,1,1,nan,nan,inf,nan,nan,,\n75,")
    page_of(run)
    assert read_run(run.folder).course("output_loss")[-1][0] == 4.0


@pytest.mark.parametrize("images", [1, 2])
def test_one_image(make_run: Make, images: int) -> None:
    page = page_of(make_run(images=images))
    assert "No class has two test images" in page.words()


def test_many_classes(make_run: Make) -> None:
    page = page_of(make_run(classes=tuple(f"class {number}" for number in range(100)), images=150))
    assert not page.all("table")
    assert "10 of 100 classes are shown" in page.words()
    assert len(page.all("figure", "group")) == 10
    assert len(page.all("script")) == 1
    assert all("hidden" in label for label in page.all("label"))  # without JavaScript there is nothing to type into
    assert len(page.all("ul", "bars")) == 1
    shown = [float(text.split("\N{NO-BREAK SPACE}")[0]) for tags, _, text in page.text if tags[-2:] == ("li", "b")]
    assert shown[:100] == sorted(shown[:100], reverse=True)  # errors by class


def test_the_cells_of_many_classes_say_what_they_are(make_run: Make) -> None:
    run = make_run(classes=tuple(f"class {number}" for number in range(30)), images=90)
    label = run.evaluation.label
    said = torch.where(torch.arange(90) < 30, (label + 1) % 30, label)
    evaluation = replace(run.evaluation, activation=torch.nn.functional.one_hot(said, 30).float())
    page = page_of(run._replace(evaluation=evaluation))
    cells = [(int(cell["x"]), int(cell["y"])) for cell in page.all("rect")]
    titles = [text for tags, _, text in page.text if tags[-2:] == ("rect", "title")]
    assert sorted(cells) == sorted({(s, t) for t, s in zip(label.tolist(), said.tolist(), strict=True)})
    assert dict(zip(cells, titles, strict=True))[8, 7] == "class 7 → class 8: 1 of 3 images"
    assert dict(zip(cells, titles, strict=True))[7, 7] == "class 7 → class 7: 2 of 3 images"


def with_files(run: Any, root: Path) -> Any:
    """Every second of the test images has its file."""
    files = tuple(root / f"cat & <dog>/#{number} ü%41.png" for number in range(len(run.test)))
    (root / "cat & <dog>").mkdir(parents=True)
    for file in files[::2]:
        file.write_bytes(b"")
    card = json.loads((run.folder / "run.json").read_text())
    card["data"]["set"] = str(root)
    (run.folder / "run.json").write_text(json.dumps(card))
    return run._replace(test=replace(run.test, files=files))


@pytest.mark.parametrize("images", [9, 60])  # in the cards alone, and in the list of all
def test_mistakes_name_their_files(make_run: Make, tmp_path: Path, images: int) -> None:
    run = with_files(make_run(images=images), tmp_path / "deep" / "data")
    page = page_of(run)
    wrong = (run.evaluation.predicted != run.evaluation.label).nonzero().squeeze(1).tolist()
    linked = {link["href"] for link in page.all("a", "file")}
    found = {(run.folder / unquote(address)).resolve() for address in linked}
    assert found == {run.test.files[index].resolve() for index in wrong if index % 2 == 0}
    assert all(address.startswith("../deep/data/") for address in linked)
    assert {name["title"] for name in page.all("span", "file")} == {
        f"cat & <dog>/#{index} ü%41.png" for index in wrong if index % 2
    }
    assert ("misclassified images" in page.words()) == (images == 60)
    [heading] = [text for tags, _, text in page.text if tags[-1:] == ("h1",)]
    assert heading == "hybrid32 with FREM routing on data"
    assert str(tmp_path) not in " ".join(text for tags, _, text in page.text if "section" not in tags)


def test_addresses_of_files() -> None:
    page = Path("/home/me/runs/run-1")
    assert address_from(page, Path("/home/me/images/a b.png")) == "../../images/a%20b.png"
    assert address_from(page, Path("/home/me/runs/run-1/javascript:x")) == "javascript%3Ax"
    assert address_from(page, Path("/mnt/images/a b.png")) == "file:///mnt/images/a%20b.png"
    assert shown_name(Path("/mnt/images/cat/a.png"), Path("/mnt/images")) == "cat/a.png"
    assert shown_name(Path("/mnt/images/cat/a.png"), Path("mnist")) == "a.png"


def test_the_interval_is_beside_the_error(make_run: Make) -> None:
    run = make_run(images=10)
    activation = torch.nn.functional.one_hot((run.evaluation.label + (torch.arange(10) < 2)) % 3, 3).float()
    words = page_of(run._replace(evaluation=replace(run.evaluation, activation=activation))).words()
    # Wilson's interval of 2 in 10, from a table: 5.67 % to 50.98 %
    assert "95 % interval: 5.67 % to 50.98 %" in words.replace("\N{NO-BREAK SPACE}", " ")


def test_activations_that_are_not_numbers(make_run: Make) -> None:
    run = make_run()
    activation = run.evaluation.activation.clone()
    activation[3:5] = math.nan
    page_of(run._replace(evaluation=replace(run.evaluation, activation=activation)))


def test_everything_right(make_run: Make) -> None:
    run = make_run()
    right = torch.nn.functional.one_hot(run.evaluation.label, 3).float()
    page = page_of(run._replace(evaluation=replace(run.evaluation, activation=right)))
    assert "every test image was classified correctly" in page.words()
    assert "0.00\N{NO-BREAK SPACE}%" in page.words()


def test_names_are_escaped(make_run: Make) -> None:
    hostile = ("<script>alert(1)</script>", "\"><img src=x onerror='x'>", "&amp; " + "long" * 60)
    page = page_of(make_run(classes=hostile))
    assert not page.all("script")
    assert not [attributes for _, attributes in page.elements if "onerror" in attributes]
    for name in hostile:
        assert name in page.words()


def test_names_that_are_not_text(make_run: Make) -> None:
    page_of(make_run(classes=("apple\udcff", "boat", "\N{PILE OF POO}")))  # as folders may be called


def test_the_network_is_left_as_it_was(make_run: Make) -> None:
    run = make_run()
    run.classifier.train()
    before = {name: value.clone() for name, value in run.classifier.state_dict().items()}
    page_of(run)
    assert run.classifier.training
    assert all(torch.equal(value, before[name]) for name, value in run.classifier.state_dict().items())


def test_an_unfinished_run_is_a_users_error(make_run: Make) -> None:
    run = make_run()
    (run.folder / "result.json").unlink()
    with pytest.raises(UserError, match=r"result\.json cannot be read"):
        write_report(run.folder, run.classifier, run.test, run.evaluation)
    (run.folder / "result.json").write_text("[]")
    with pytest.raises(UserError, match="holds a list"):
        write_report(run.folder, run.classifier, run.test, run.evaluation)
    assert not (run.folder / "report.html").exists()


def test_the_confusion_matrix_shows_the_counts(make_run: Make) -> None:
    run = make_run(images=20)
    cells = run.evaluation.confusion.flatten().tolist()
    page = page_of(run)
    shown = [0 if text == "·" else int(text) for tags, i, text in page.text if tags[-1:] == ("td",)]
    assert shown == cells
    diagonal = [text for attributes, text in page.text_of("td", "right") if attributes["title"].startswith("apple")]
    assert diagonal == ([str(cells[0])] if cells[0] else [])


def test_the_curves_end_where_the_metrics_do(make_run: Make) -> None:
    """Places on the chart, read back with the labels of its axes, are the values of the file."""
    run = make_run()
    charts = (run.folder / write_report(*run[:4]).name).read_text().split("<svg")[1:]
    ends = run.rows[1::2]
    lines = [
        (0, "noise", 0, "output_loss", run.rows[::2]),  # those within epochs
        (0, "course", 0, "output_loss", ends),
        (0, "course", 1, "validation_loss", ends),
        (1, "course", 0, "reconstruction_loss", ends),
        (2, "course", 0, "rate", run.rows),
        (3, "noise", 0, "training_error", run.rows[::2]),
        (3, "course", 1, "validation_error", ends),
    ]
    for chart, style, number, column, rows in lines:
        page = Page("<svg" + charts[chart].split("</svg>")[0] + "</svg>")
        line = page.all("polyline", style)[number]
        drawn = [tuple(map(float, point.split(","))) for point in line["points"].split()]
        to_epoch, to_value = reader(page, "tick-x", "x"), reader(page, "tick-y", "y")
        for place, row in zip(drawn, rows, strict=True):
            assert to_epoch(place[0]) == pytest.approx(row["epoch"], abs=0.01)
            assert to_value(place[1]) == pytest.approx(row[column], abs=0.004)


def reader(page: Page, style: str, coordinate: str) -> Callable[[float], float]:
    """From a place on the chart to the value there, by the labels of its axis."""
    ticks = [(float(attributes[coordinate]), number(text)) for attributes, text in page.text_of("text", style)]
    (p0, v0), (p1, v1) = ticks[0], ticks[-1]
    shift = 4 if coordinate == "y" else 0  # labels stand a little below their line
    return lambda place: v0 + (place + shift - p0) * (v1 - v0) / (p1 - p0)


def number(text: str) -> float:
    return float(text.split("\N{NO-BREAK SPACE}")[0]) / (100 if "%" in text else 1)


def test_the_test_error_is_marked_at_the_epoch_of_its_weights(make_run: Make) -> None:
    run = make_run(result={"weights": "best"})
    lines = (run.folder / "metrics.csv").read_text().splitlines()
    lines[4] = lines[4].rsplit(",", 2)[0] + ",0.01,0.5"  # the second epoch's end
    (run.folder / "metrics.csv").write_text("\n".join(lines))
    chart = write_report(*run[:4]).read_text().split("<svg")[4]
    page = Page("<svg" + chart.split("</svg>")[0] + "</svg>")
    top = page.all("polygon")[0]["points"].split()[0]
    assert reader(page, "tick-x", "x")(float(top.split(",")[0])) == pytest.approx(2.0, abs=0.01)


def test_one_number_of_one_capsule_is_varied() -> None:
    pose, spread = torch.randn(3, 16), torch.rand(16) + 0.1
    varied = vary(pose, 1, spread)
    assert varied.shape == (16, len(STEPS), 3, 16)
    for dimension in range(16):
        for at, step in enumerate(STEPS):
            expected = pose.clone()
            expected[1, dimension] += step * spread[dimension]
            torch.testing.assert_close(varied[dimension, at], expected)


def test_steep_losses_are_drawn_by_their_logarithm() -> None:
    values = [2.0, 0.7, 0.03, 0.005]
    points = [(float(epoch), value) for epoch, value in enumerate(values, 1)]
    chart = line_chart("Loss", [Series(name="training", points=points, style="a")], is_share=False)
    page = Page(chart)
    assert "log scale" in page.words()
    heights = [float(point.split(",")[1]) for point in page.all("polyline", "course")[0]["points"].split()]
    ticks = [(float(a["y"]) - 4, float(text)) for a, text in page.text_of("text", "tick-y")]
    (p0, v0), (p1, v1) = ticks[0], ticks[-1]
    for height, value in zip(heights, values, strict=True):
        share = (height - p0) / (p1 - p0)
        assert v0 * (v1 / v0) ** share == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e-12], [3.0], [1e9, 1e-9], [0.999, 1.0]])
def test_odd_values_are_drawn_too(values: list[float]) -> None:
    points = [(float(epoch), value) for epoch, value in enumerate(values)]
    page = Page(line_chart("Loss", [Series(name="training", points=points, style="a")], is_share=False))
    places = page.all("polyline", "course")[0]["points"].replace(",", " ").split()
    assert all(0 <= float(place) <= WIDTH for place in places)
    assert len(page.text_of("text", "tick-y")) > 1


def test_a_long_run_stays_small(make_run: Make) -> None:
    run = make_run(epochs=2000)
    assert write_report(*run[:4]).stat().st_size < 500_000


def test_the_surest_right_answer_is_shown() -> None:
    activation = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.7, 0.0], [0.1, 0.8, 0.1], [0.0, 0.3, 0.95]])
    evaluation = Evaluation(classes=("a", "b", "c"), label=torch.tensor([1, 1, 1, 2]), activation=activation)
    assert surest(evaluation) == 2  # image 3 is the only one of its class, image 0 is a mistake


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cat", ["cat"]),
        ("Eurasian tree sparrow", ["Eurasian tree ", "sparrow"]),
        ("Hippopotamus", ["Hipp", "opotamus"]),
        ("n02123045_tabby_cat_number_7 ", ["n02123045_tabby_cat_n", "umber_7 "]),
    ],
)
def test_the_end_of_a_name_is_not_cut(name: str, parts: list[str]) -> None:
    page = Page(caption(name))
    assert [text for _, _, text in page.text] == parts
    assert page.all("span", "cut")[0]["title"] == name


def test_errors_of_the_mean_of_the_others() -> None:
    images = torch.rand(5, 2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [(images[i] - images[[j for j in range(5) if j != i]].mean(0)).square().sum().item() for i in range(5)]
    assert squared_error_of_mean(images).tolist() == pytest.approx(expected)


def test_what_reconstructions_show() -> None:
    """Decoders that are known: the image itself, the mean of its class, the brightness alone."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(30) % 3
    images = torch.rand(3, 1, 4, 4, generator=generator)[label] + 0.1 * torch.rand(30, 1, 4, 4, generator=generator)
    plain = images - images.mean((2, 3), keepdim=True)
    of_mean = float(squared_error_of_mean(plain).sum())

    brighter = compare(images, images + 0.2, label)
    assert brighter == pytest.approx((0, 0), abs=1e-6)
    class_mean = torch.stack([plain[label == one].mean(0) for one in range(3)])[label]
    of_class = compare(images, class_mean, label)
    assert of_class is not None
    assert of_class.of_class == pytest.approx((9 / 10) ** 2)
    assert of_class.of_all == pytest.approx(float((plain - class_mean).square().sum()) / of_mean)
    grey = compare(images, images.mean((2, 3), keepdim=True).expand_as(images), label)
    assert grey is not None
    assert grey.of_all == pytest.approx(float(plain.square().sum()) / of_mean)
    assert compare(torch.ones(4, 1, 2, 2), torch.zeros(4, 1, 2, 2), label[:4] * 0) is None

    assert "show the individual image" in Likeness(0.3, 0.5).words
    assert "show the class, not the individual image" in of_class.words
    assert "show next to nothing of their input beyond its brightness" in grey.words
    assert "46 % of that of the mean image of the class" in Likeness(0.3, 0.46).words.replace("\N{NO-BREAK SPACE}", " ")
