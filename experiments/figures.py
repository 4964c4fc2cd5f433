"""The paper's figures with our runs: loss curves, and reconstructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from experiments.cells import LABELS, Cell
from experiments.results import Point, Result
from experiments.states import differences_of
from experiments.tables import NOT_RUN
from torchcaps.bench.plots import METHOD_COLORS
from torchcaps.errors import UserError

IMAGES = "images"  # the folder beside the markdown file
COLUMNS = {"output_loss": "Output loss", "reconstruction_loss": "Reconstruction loss"}
METHODS = ("FRMS", "FREM", "EM")
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

    def files(self) -> dict[str, bytes]:
        """The picture for the markdown file."""
        charts = self.charts()
        return {f"{self.name}.png": draw(charts)} if charts else {}


def require_figure() -> Any:
    """The class of matplotlib's figures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("the figures need matplotlib: pip install 'torchcaps[bench]'") from None
    return Figure


def draw(charts: Mapping[str, Mapping[str, list[Point]]]) -> bytes:
    """Charts as a PNG, two in a row."""
    rows = -(-len(charts) // 2)
    figure: Any = require_figure()(figsize=(10, 3.2 * rows), layout="constrained", dpi=110)
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
        lines = [["set", *METHODS], ["---"] * (1 + len(METHODS))]
        for data, row in self.rows().items():
            cells = [
                NOT_RUN if (one := row.get(method)) is None else self._link(data, method, one) for method in METHODS
            ]
            lines.append([data, *cells])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [table, warning(self.cells, self.results)]))

    def _link(self, data: str, method: str, result: Result) -> str:
        return f"![{data}, {method}, {result.data}]({IMAGES}/{self._file(result)})"

    def _file(self, result: Result) -> str:
        return f"{self.name}-{result.name}.png"

    def files(self) -> dict[str, bytes]:
        """The pictures for the markdown file."""
        results = [result for row in self.rows().values() for result in row.values()]
        return {self._file(one): one.picture.read_bytes() for one in results if one is not None and one.picture}
