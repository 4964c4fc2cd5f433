"""The page of ``torchcaps compare``: one file that needs nothing else."""

from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.writing import whole_file
from torchcaps.report.charts import Series, line_chart
from torchcaps.report.comparison import Compared, Comparison, Disagreement, disagreements, verdict
from torchcaps.report.curves import FEW_EPOCHS
from torchcaps.report.markup import Html, Section, lead, scroll_box, section, tag
from torchcaps.report.page import whole_page
from torchcaps.report.pictures import picture
from torchcaps.runs.run import Point, Run
from torchcaps.runs.text import NOTHING, count, duration, percent, setting

STYLES = ("a", "b", "c", "d", "e", "f")  # the colours of runs; the lines of further ones are broken
MOST_IMAGES = 24  # of a disagreement
SIDE = 96  # of a thumbnail, at most
CURVES = {"output_loss": "Output loss", "training_error": "Training error", "validation_error": "Validation error"}


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the page."""
    with whole_file(path) as file:
        file.write(comparison_page(comparison).encode(errors="replace"))  # names of files may hold what is not text
    return path


def comparison_page(comparison: Comparison) -> str:
    """The page's text."""
    images, classes = comparison.runs[0].evaluation.label, comparison.runs[0].evaluation.classes
    title = f"{len(comparison.runs)} runs on {Path(comparison.data).name}"
    says = f"Evaluated on the same {count(len(images), f'{comparison.split} image')} of {len(classes)} classes."
    header = tag("header", tag("p", "comparison", class_="over"), tag("h1", title), tag("p", says, class_="lead"))
    return whole_page(
        title, header, [_results(comparison), _settings(comparison), _curves(comparison), _gallery(comparison)]
    )


def style(place: int) -> str:
    """The classes of the style sheet that are the colour of a run, and how its line is drawn."""
    return STYLES[place % len(STYLES)] + (" broken" if place >= len(STYLES) else "")


def _results(comparison: Comparison) -> Section:
    runs = comparison.runs
    widest = max(run.evaluation.interval[1] for run in runs)
    rows = []
    for place, run in enumerate(runs):
        seconds, (low, high) = run.run.number("seconds"), run.evaluation.interval
        cells = (
            tag("b", percent(run.evaluation.error)),
            _range(run, style(place), widest),
            f"{percent(low)} to {percent(high)}",
            f"{run.evaluation.wrong:,}",
            f"{run.parameters:,}",
            NOTHING if seconds is None else duration(seconds),
        )
        rows.append(tag("tr", tag("th", _swatch(place), run.name, scope="row"), *(tag("td", cell) for cell in cells)))
    names = ("run", f"{comparison.split} error", "", "95 % interval", "wrong", "parameters", "training time")
    table = tag("table", _head(names), tag("tbody", *rows), class_="results")
    says = "The intervals are Wilson's, and count images as independent of each other."
    test = comparison.mcnemar
    words = Html() if test is None else tag("p", verdict([run.name for run in runs], test), class_="verdict")
    return section("results", "Results", lead(says), scroll_box("results", table), words)


def _head(names: tuple[str, ...] | list[str]) -> Html:
    return tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))


def _swatch(place: int) -> Html:
    return tag("i", class_=f"swatch {style(place)}")


def _range(run: Compared, colour: str, widest: float) -> Html:
    """The interval as a line with the error as a dot on it, on the same scale for all runs."""
    width = 160

    def place(share: float) -> float:
        return round(6 + (width - 12) * share / widest, 1)

    low, high = run.evaluation.interval
    return tag(
        "svg",
        tag("title", f"{percent(run.evaluation.error)}, 95 % interval {percent(low)} to {percent(high)}"),
        tag("line", x1=6, x2=width - 6, y1=8, y2=8, class_="grid"),
        tag("line", x1=place(low), x2=place(high), y1=8, y2=8, class_="span"),
        tag("circle", cx=place(run.evaluation.error), cy=8, r=4.5),
        viewBox=f"0 0 {width} 16",
        role="img",
        class_=f"range {colour}",
    )


def _settings(comparison: Comparison) -> Section:
    if not comparison.settings:
        return section("settings", "Settings", lead("The runs have the same settings."))
    rows = []
    for name, values in comparison.settings.items():
        cells = [tag("td", NOTHING if value is None else setting(value)) for value in values]
        rows.append(tag("tr", tag("th", name.replace("_", " "), scope="row"), *cells))
    head = _head(["setting", *(run.name for run in comparison.runs)])
    table = tag("table", head, tag("tbody", *rows), class_="results")
    return section("settings", "Settings", lead("Those that differ."), scroll_box("settings", table))


def _curves(comparison: Comparison) -> Section:
    charts = []
    for column, title in CURVES.items():
        series = [
            Series(name=run.name, points=points, style=style(place))
            for place, run in enumerate(comparison.runs)
            if (points := _points(run.run, column))
        ]
        if series:
            charts.append(line_chart(title, series, is_share=column.endswith("error")))
    without = [run.name for run in comparison.runs if not any(_points(run.run, column) for column in CURVES)]
    if not charts:
        return section("curves", "Curves", lead("None of the runs has a metrics.csv."))
    says = "Losses and training errors are means over each epoch."
    if without:
        says += f" Without curves, having no metrics.csv: {', '.join(without)}."
    return section("curves", "Curves", lead(says), tag("div", *charts, class_="charts"))


def _points(run: Run, column: str) -> list[Point]:
    """Means over the epochs; of a short run the rows, of validation errors what was measured."""
    rows, means = run.course(column), run.by_epoch(column)
    return rows if column == "validation_error" or len(means) < FEW_EPOCHS else means


def _gallery(comparison: Comparison) -> Section:
    found = disagreements(comparison)
    title = "Images that they disagree on"
    if not any(len(one.places) for one in found):
        return section("images", title, lead("None: the runs are right, and wrong, on the same images."))
    legend = [tag("span", _swatch(place), run.name) for place, run in enumerate(comparison.runs)]
    says = "What each run takes an image for, with the activation; wrong answers are in red. "
    if comparison.images.images.shape[1] not in (1, 3):
        says += "Only the first channel of an image is shown. "
    parts = [_group(comparison, one) for one in found]
    return section("images", title, lead(says), tag("p", *legend, class_="legend runs"), *parts)


def _group(comparison: Comparison, found: Disagreement) -> Html:
    shown = found.places[:MOST_IMAGES]
    head = tag("h3", f"{found.title}: {count(len(found.places), 'image')}")
    if not len(shown):
        return head
    split = comparison.images.take(shown)
    cards = [
        _card(comparison, index, image, split.files[place] if split.files else None)
        for place, (index, image) in enumerate(zip(shown.tolist(), _thumbnails(split.images), strict=True))
    ]
    note = f"The {len(shown)} with the surest mistakes:" if len(shown) < len(found.places) else ""
    return tag("div", head, lead(note) if note else Html(), tag("ul", *cards, class_="mistakes compared"))


def _thumbnails(images: Tensor) -> Tensor:
    """Images ``[n, C, H, W]`` at the size at which they are shown."""
    factor = SIDE / max(images.shape[2:])
    if factor >= 1:
        return images
    small = torch.nn.functional.interpolate(images.float() / 255, scale_factor=factor, mode="area")
    return small.clamp(0, 1)


def _card(comparison: Comparison, index: int, image: Tensor, file: Path | None) -> Html:
    classes = comparison.runs[0].evaluation.classes
    truth = int(comparison.runs[0].evaluation.label[index])
    lines = []
    for place, run in enumerate(comparison.runs):
        said = int(run.evaluation.predicted[index])
        value = float(run.evaluation.activation[index, said].nan_to_num())
        name = tag(
            "span", classes[said], class_="" if said == truth else "mistaken", title=f"{run.name}: {classes[said]}"
        )
        lines.append(tag("p", _swatch(place), name, tag("b", f"{value:.2f}")))
    alt = f"{comparison.split} image {index}: {classes[truth]}"
    true = tag("p", tag("small", "true"), tag("span", classes[truth], title=classes[truth]))
    return tag("li", picture(image, alt), _file(file, f"{comparison.split} image {index}"), true, *lines)


def _file(file: Path | None, otherwise: str) -> Html:
    """The name of an image, with a link to its file where that exists."""
    if file is None:
        return tag("p", otherwise, class_="file")
    if not file.is_file():
        return tag("p", file.name, class_="file", title=str(file))
    return tag("p", tag("a", file.name, href=file.resolve().as_uri()), class_="file", title=str(file))
