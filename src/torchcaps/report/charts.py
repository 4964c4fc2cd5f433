"""Charts as SVG: axes, lines and bars."""

import math
from dataclasses import dataclass, field
from typing import Any

from torchcaps.report.markup import Html, tag
from torchcaps.runs.run import Point
from torchcaps.runs.text import percent, short


@dataclass(frozen=True)
class Axis:
    """The range of values from one end of an axis to the other."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def from_zero(high: float, *, ticks: int = 5, fit: bool = False) -> Axis:
    """An axis from 0 to the round number above ``high``; with ``fit`` to ``high`` itself.

    >>> from_zero(0.83).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    high = high if high > 0 else 1.0
    step = round_step(high / ticks)
    last = math.floor(high / step + 1e-9) if fit else math.ceil(high / step - 1e-9)
    marks = tuple(round(step * k, 12) for k in range(last + 1))
    return Axis(0.0, high if fit else marks[-1], marks)


def logarithmic(low: float, high: float) -> Axis:
    """An axis of ratios, with some room at both ends.

    >>> logarithmic(0.004, 0.7).ticks
    (0.01, 0.1)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1,) if last - first > 2 else (1, 2, 5)
    marks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    low, high = low / 1.2, high * 1.2
    return Axis(low, high, tuple(float(f"{mark:.3g}") for mark in marks if low <= mark <= high), logarithmic=True)


def round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, ... (by a power of ten) that is at least that."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


# In units that are about a pixel on a phone and a quarter more on a wide screen.
WIDTH, HEIGHT = 380, 232
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 42
MOST_POINTS = 500  # more than that cannot be told apart at this width
MOST_DOTS = 100  # points that can be pointed at show their values
STEEP = 30  # losses that fall further than that are drawn by their logarithm


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    points: list[Point]  # by epoch
    style: str  # a class of the style sheet: its colour
    noise: list[Point] = field(default_factory=list)  # the same before it was averaged, drawn faintly behind
    mark: bool = False  # a single point, drawn as a diamond with a dashed line


def line_chart(title: str, series: list[Series], *, is_share: bool, linear: bool = False) -> Html:
    """A figure with its title, legend and axes; shares are shown as percentages from zero.

    Values that fall far are drawn by their logarithm, unless ``linear``.
    """
    points = [point for line in series for point in (*line.points, *line.noise)]
    x_axis = from_zero(max(x for x, _ in points), fit=True)
    y_axis = _value_axis([y for _, y in points], is_share or linear)
    plot = tag(
        "svg",
        tag("title", f"{title}: {', '.join(_summary(line, is_share) for line in series)}"),
        _grid(x_axis, y_axis, is_share),
        *(_line(line, x_axis, y_axis, is_share) for line in series),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )
    scale = tag("span", "log scale", class_="scale") if y_axis.logarithmic else Html()
    legend = tag("span", *(_legend(line, is_share) for line in series), class_="legend")
    heading = tag("figcaption", tag("b", title), scale, legend)
    return tag("figure", heading, plot, class_="chart")


def thin(points: list[Any], most: int = MOST_POINTS) -> list[Any]:
    """Not more than ``most`` points or so, the first and the last among them."""
    if len(points) <= most:
        return points
    every = -(-len(points) // most)
    return [*points[:-1:every], points[-1]]


def _value_axis(values: list[float], linear: bool) -> Axis:
    low, high = min(values), max(values)
    if not linear and low > 0 and high / low > STEEP:
        return logarithmic(low, high)
    return from_zero(high)


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM), 1)


def _grid(x_axis: Axis, y_axis: Axis, is_share: bool) -> Html:
    bottom, parts = HEIGHT - BOTTOM, []
    for value in y_axis.ticks:
        y = _y(y_axis, value)
        digits = 0 if y_axis.ticks[-1] >= 0.05 else 1
        label = percent(value, digits) if is_share else short(value)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", label, x=LEFT - 7, y=y + 4, class_="tick-y"))
    for value in x_axis.ticks:
        x = _x(x_axis, value)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", short(value), x=x, y=bottom + 18, class_="tick-x"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"))
    parts.append(tag("text", "epoch", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 5, class_="label"))
    return tag("g", *parts)


def _line(line: Series, x_axis: Axis, y_axis: Axis, is_share: bool) -> Html:
    def place(points: list[Point]) -> list[Point]:
        return [(_x(x_axis, x), _y(y_axis, y)) for x, y in points]

    def path(points: list[Point], style: str) -> Html:
        corners = " ".join(f"{x},{y}" for x, y in place(thin(points)))
        return tag("polyline", points=corners, class_=style)

    parts: list[str] = []
    if line.mark:
        x, y = place(line.points)[-1]
        diamond = f"{x},{y - 5} {x + 5},{y} {x},{y + 5} {x - 5},{y}"
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="dashed"))
        parts.append(tag("polygon", tag("title", _summary(line, is_share)), points=diamond))
        return tag("g", *parts, class_=line.style)
    if line.noise:
        parts.append(path(line.noise, "noise"))
    parts.append(path(line.points, "course"))
    if len(line.points) <= MOST_DOTS:
        for (epoch, value), (x, y) in zip(line.points, place(line.points), strict=True):
            text = f"{line.name}, epoch {short(epoch)}: {_value(value, is_share)}"
            parts.append(tag("circle", tag("title", text), cx=x, cy=y, r=2.5))
    return tag("g", *parts, class_=line.style)


def _value(value: float, is_share: bool) -> str:
    return percent(value) if is_share else short(value)


def _summary(line: Series, is_share: bool) -> str:
    last = _value(line.points[-1][1], is_share)
    return f"{line.name} {last}" if line.mark else f"{line.name} {last} at the end"


def _legend(line: Series, is_share: bool) -> Html:
    swatch = tag("i", class_="diamond" if line.mark else "swatch")
    return tag("span", swatch, f"{line.name} ", tag("b", _value(line.points[-1][1], is_share)), class_=line.style)
