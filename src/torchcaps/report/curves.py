"""How training went: losses, the rate and errors by epoch."""

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.report.charts import Series, line_chart
from torchcaps.report.markup import Html, Section, caption, lead, searchable, section, tag
from torchcaps.runs.run import Point, Run
from torchcaps.runs.text import NOTHING, count, percent

MOST_BARS = 20  # classes beside the chart; the bars of more scroll, the hardest class first
FEW_EPOCHS = 3  # so few means say less than the rows that they are made of


def losses(run: Run) -> Section:
    """Output loss, reconstruction loss and learning rate, side by side: their scales differ."""
    title = "Losses"
    output, reconstruction = run.course("output_loss"), run.course("reconstruction_loss")
    if not output and not reconstruction:
        return section("losses", title, lead("There are no curves: metrics.csv holds no losses."))
    charts = []
    if output:
        series = [_series(run, "output_loss", "a")]
        if validation := run.course("validation_loss"):
            series.append(Series(name="validation", points=validation, style="b"))
        charts.append(line_chart("Output loss", series, is_share=False))
    if reconstruction:
        charts.append(line_chart("Reconstruction loss", [_series(run, "reconstruction_loss", "a")], is_share=False))
    if rate := run.course("rate"):
        charts.append(
            line_chart("Learning rate", [Series(name="rate", points=rate, style="c")], is_share=False, linear=True)
        )
    says = ["Losses are means over images. "]
    if len({margin for _, margin in run.course("margin")}) > 1:
        says.append("The output loss can rise while the margin of the spread loss grows. ")
    if not reconstruction:
        says.append("There is no decoder, so there is no reconstruction loss.")
    return section("losses", title, lead(*says), tag("div", *charts, class_="charts"))


def errors(run: Run, evaluation: Evaluation) -> Section:
    """Training and validation error by epoch with the test error where it belongs; and that of each class."""
    validation = run.course("validation_error")
    series = []
    if run.course("training_error"):
        series.append(_series(run, "training_error", "a", name="training"))
    if validation:
        series.append(Series(name="validation", points=validation, style="b"))
    epoch = _tested_epoch(run, validation)
    series.append(Series(name="test", points=[(epoch, evaluation.error)], style="c", mark=True))
    figures = [line_chart("Error by epoch", series, is_share=True), _class_bars(evaluation)]
    which = {
        "best": "the weights from the epoch with the lowest validation error",
        "mean": "the mean of the weights over the last epochs (so were the validation images after the last epoch)",
    }
    chosen = which.get(str(run.result.get("weights")), "the weights of the last epoch")
    says = [f"The test images were evaluated once, with {chosen}."]
    if not validation:
        says.append(" There were no validation images.")
    return section("errors", "Errors", lead(*says), tag("div", *figures, class_="charts"))


def _class_bars(evaluation: Evaluation) -> Html:
    by_class = evaluation.by_class()
    is_long = len(by_class) > MOST_BARS
    if is_long:
        by_class = sorted(by_class, key=lambda of_class: -of_class[2] / max(of_class[1], 1))
    rows = []
    for name, images, wrong in by_class:
        share = wrong / images if images else 0.0
        bar = tag("span", tag("i", style=f"width:{100 * share:.1f}%"), class_="bar c")
        value = tag("b", percent(share, 1) if images else NOTHING)
        rows.append(tag("li", caption(name), bar, value, title=f"{wrong:,} of {count(images, 'image')} wrong"))
    bars = tag("ul", *rows, class_="bars")
    return tag(
        "figure", tag("figcaption", "Test error by class"), searchable("Find a class", bars) if is_long else bars
    )


def _series(run: Run, column: str, style: str, name: str = "training") -> Series:
    """Means over the epochs in front of those over a few steps; in a short run the latter alone."""
    rows = [(row["epoch"], row[column]) for row in run.by_steps() if column in row]
    means = run.by_epoch(column)
    if len(means) < FEW_EPOCHS:
        return Series(name=name, points=rows or means, style=style)
    return Series(name=name, points=means, noise=rows, style=style)


def _tested_epoch(run: Run, validation: list[Point]) -> float:
    if run.result.get("weights") == "best" and validation:
        return min(validation, key=lambda point: point[1])[0]
    return run.rows[-1]["epoch"] if run.rows else run.number("epochs") or 1.0
