"""The paper's figures with our runs: loss curves, and reconstructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from torchcaps.bench.plots import METHOD_COLORS
from torchcaps.errors import UserError
from torchcaps.report.charts import Series, line_chart
from torchcaps.report.markup import Html, join, scroll_box, tag
from torchcaps.report.pictures import png_uri
from torchcaps.reproduce.cells import LABELS, Cell
from torchcaps.reproduce.results import Point, Result
from torchcaps.reproduce.states import differences_of
from torchcaps.reproduce.tables import NOT_RUN

IMAGES = "images"  # the folder beside the markdown file
COLUMNS = {"output_loss": "Output loss", "reconstruction_loss": "Reconstruction loss"}
STYLES = dict(zip(("FRMS", "FREM", "EM"), "abc", strict=True))  # the style sheet's colours
COLORS = {LABELS[method]: color for method, color in METHOD_COLORS.items()}


def warning(cells: list[Cell], results: Mapping[str, Result]) -> str:
    """Which of a figure's results are of other recipes than they should be; the tables say how."""
    found = [(cell, results[cell.job.name]) for cell in cells if cell.job.name in results]
    names = [", ".join(cell.labels) for cell, result in found if differences_of(cell.job, result)]
    return f"Of another recipe: {'; '.join(names)}." if names else ""


@dataclass(frozen=True)
class LossCurves:
    """Losses by epoch, a chart for each of the loss functions and each part of the loss."""

    name: str
    cells: list[Cell]
    results: Mapping[str, Result]
    title: str = "Loss curves"
    missing: str = f"Loss curves: {NOT_RUN}."

    def charts(self) -> dict[str, dict[str, list[Point]]]:
        """Heading -> method -> points; what was not run is left out."""
        found: dict[str, dict[str, list[Point]]] = {}
        for column, heading in COLUMNS.items():
            for cell in self.cells:
                loss, method = cell.labels
                result = self.results.get(cell.job.name)
                points = result.curves.get(column) if result else None
                if points:
                    found.setdefault(f"{heading}, {loss} loss", {})[method] = points
        return found

    def as_markdown(self) -> str:
        if not self.charts():
            return self.missing
        picture = f"![{self.title}: {', '.join(self.charts())}]({IMAGES}/{self.name}.png)"
        return "\n\n".join(filter(None, [picture, warning(self.cells, self.results)]))

    def as_html(self) -> Html:
        charts = [
            line_chart(
                heading,
                [Series(name=method, points=points, style=STYLES[method]) for method, points in lines.items()],
                is_share=False,
            )
            for heading, lines in self.charts().items()
        ]
        shown = tag("div", *charts, class_="charts") if charts else tag("p", self.missing)
        note = warning(self.cells, self.results)
        return join([tag("h3", self.title), shown, tag("p", note) if note else Html()])

    def files(self) -> dict[str, bytes]:
        """The picture for the markdown file."""
        charts = self.charts()
        return {f"{self.name}.png": draw(charts)} if charts else {}


def draw(charts: Mapping[str, Mapping[str, list[Point]]]) -> bytes:
    """Charts as a PNG, two in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("the loss curves need matplotlib: pip install 'torchcaps[bench]'") from None
    rows = -(-len(charts) // 2)
    figure: Any = Figure(figsize=(10, 3.2 * rows), layout="constrained", dpi=110)
    panels = figure.subplots(rows, 2, squeeze=False).flatten()
    for axes, (heading, lines) in zip(panels, charts.items(), strict=False):
        for method, points in lines.items():
            marker = "." if len(points) == 1 else None
            axes.plot(*zip(*points, strict=True), label=method, color=COLORS[method], linewidth=1.2, marker=marker)
        axes.set(title=heading, xlabel="epoch", xlim=(0, None), ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    file = BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


@dataclass(frozen=True)
class Gallery:
    """Reconstructions: a row for each set, a column for each method."""

    title: str
    name: str
    cells: list[Cell]
    results: Mapping[str, Result]

    def rows(self) -> dict[str, dict[str, Result | None]]:
        """Set -> method -> the result that has the picture."""
        found: dict[str, dict[str, Result | None]] = {}
        for cell in self.cells:
            data, method = cell.labels
            result = self.results.get(cell.job.name)
            found.setdefault(data, {})[method] = result if result is not None and result.picture else None
        return found

    def as_markdown(self) -> str:
        lines = [["set", *STYLES], ["---"] * (1 + len(STYLES))]
        for data, row in self.rows().items():
            cells = [
                NOT_RUN if (one := row.get(method)) is None else self._link(data, method, one) for method in STYLES
            ]
            lines.append([data, *cells])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [table, warning(self.cells, self.results)]))

    def _link(self, data: str, method: str, result: Result) -> str:
        return f"![{data}, {method}, {result.data}]({IMAGES}/{self._file(result)})"

    def _file(self, result: Result) -> str:
        return f"{self.name}-{result.name}.png"

    def as_html(self) -> Html:
        head = tag("tr", *(tag("th", name, scope="col") for name in ("set", *STYLES)))
        rows = [
            tag("tr", tag("th", data, scope="row"), *(self._cell(data, method, row.get(method)) for method in STYLES))
            for data, row in self.rows().items()
        ]
        table = tag("table", tag("thead", head), tag("tbody", *rows), class_="results gallery")
        note = warning(self.cells, self.results)
        return join([tag("h3", self.title), scroll_box(self.title, table), tag("p", note) if note else Html()])

    def _cell(self, data: str, method: str, result: Result | None) -> Html:
        if result is None or result.picture is None:
            return tag("td", NOT_RUN)
        return tag("td", tag("img", src=png_uri(result.picture.read_bytes()), alt=f"{data}, {method}, {result.data}"))

    def files(self) -> dict[str, bytes]:
        """The pictures for the markdown file."""
        results = [result for row in self.rows().values() for result in row.values()]
        return {self._file(one): one.picture.read_bytes() for one in results if one is not None and one.picture}
