"""The results as plots."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchcaps.bench import networks, routing
from torchcaps.bench.measure import key, ratio, spread
from torchcaps.bench.plan import CNN, HYBRID, METHODS
from torchcaps.bench.report import LABELS, Result, layer_label, layer_times
from torchcaps.bench.routing import ALL

COLORS = {"native": "#1b7f79", "triton": "#5b8fc9", "compiled": "#e0a030", "reference": "#b04a5a", "paper": "#8a8a8a"}
METHOD_COLORS = {"frem": "#1b7f79", "frms": "#5b8fc9", "em": "#b04a5a"}


def draw(part: str, result: Result, path: Path) -> None:
    """Draw a part's plot into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", dpi=150)
    PLOTS[part](figure, result)
    figure.savefig(path)


def bars(axes: Any, groups: list[str], series: dict[str, list[float]], colors: dict[str, str], form: str) -> None:
    """Groups of bars, each with its value on top."""
    width = 0.8 / len(series)
    for n, (name, heights) in enumerate(series.items()):
        places = [place - 0.4 + (n + 0.5) * width for place in range(len(groups))]
        drawn = axes.bar(places, heights, 0.92 * width, label=name, color=colors[name])
        axes.bar_label(drawn, fmt=form, fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)


def draw_routing(figure: Any, result: Result) -> None:
    figure.set_size_inches(11, 3.8)
    panels = figure.subplots(1, 3)
    backends = list(result["backends"])
    labels = [LABELS[method] for method in METHODS]
    for axes, mode in zip(panels, routing.MODES, strict=False):
        heights = {b: [1000 * spread(layer_times(result, b, m, ALL, mode)).median for m in METHODS] for b in backends}
        bars(axes, labels, heights, COLORS, "{:,.0f}")
        axes.set(yscale="log", ylabel="ms", title=f"{mode.replace('+', ' and ')}")
    peaks = result["peak_bytes"]
    memory = {b: [(peaks[key(b, method, ALL)] or 0) / 2**20 for method in METHODS] for b in backends}
    bars(panels[2], labels, memory, COLORS, "{:,.0f}")
    panels[2].set(yscale="log", ylabel="MB", title="peak memory of both")
    figure.legend(
        *panels[0].get_legend_handles_labels(), frameon=False, ncols=len(backends), loc="outside lower center"
    )
    figure.suptitle(f"Routing of all capsule layers of {HYBRID}, batch {result['batch']} (logarithmic)")


def draw_networks(figure: Any, result: Result) -> None:
    figure.set_size_inches(10, 4)
    paper = result["paper_seconds"]
    for axes, mode in zip(figure.subplots(1, 2), networks.MODES, strict=True):
        cnn = result["seconds"][key("cnn", mode)]
        heights = {
            backend: [ratio(result["seconds"][key(backend, method, mode)], cnn).median for method in METHODS]
            for backend in result["backends"]
        }
        heights["paper"] = [paper[method][mode] / paper["cnn"][mode] for method in METHODS]
        bars(axes, [LABELS[method] for method in METHODS], heights, COLORS, "{:.1f}")
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axes.set(yscale="log", ylabel=f"time relative to {CNN}", title=mode)
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, ncols=len(heights), loc="outside lower center")
    figure.suptitle(f"{HYBRID} against {CNN}, batch {result['batch']} (logarithmic; paper: on a GPU, against its CNN)")


def plain_log_scale(axes: Any) -> None:
    """Plain numbers on a logarithmic y axis that spans at least a factor of ten: a flat course shall look flat."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    stretch = max(1.0, 10 / (high / low)) ** 0.5
    axes.set_ylim(low / stretch, high * stretch)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def draw_growth(figure: Any, result: Result) -> None:
    from matplotlib.ticker import NullLocator

    figure.set_size_inches(13, 6.5)
    panels = figure.subplots(2, len(result["axes"]), sharex="col")
    for (axis, found), top, bottom in zip(result["axes"].items(), *panels, strict=True):
        values = found["values"]
        seconds = {v: [1000 * t for t in found["seconds"][str(v)] if t is not None] for v in values}
        seconds = {value: times for value, times in seconds.items() if times}
        memory = [(value, peak / 2**20) for value, peak in zip(values, found["peak_bytes"], strict=True) if peak]
        for value, times in seconds.items():
            top.plot([value] * len(times), times, ".", color=METHOD_COLORS["frem"], markersize=3, alpha=0.5)
        top.plot(list(seconds), [min(times) for times in seconds.values()], "o", color=METHOD_COLORS["frem"])
        bottom.plot([value for value, _ in memory], [size for _, size in memory], "o", color=COLORS["compiled"])
        for axes, law, unit in ((top, found["time_law"], 1 / 1000), (bottom, found["memory_law"], 2**20)):
            if law is not None:
                exponent, factor = law
                line = [factor * value**exponent / unit for value in values]
                axes.plot(values, line, "--", color="black", linewidth=1)
                axes.set_title(f"grows as $n^{{{exponent:.2f}}}$", fontsize=10)
            axes.set_xscale("log")
            plain_log_scale(axes)
            axes.grid(True, linewidth=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        bottom.set_xticks(values, [f"{value:g}" for value in values])
        bottom.xaxis.set_minor_locator(NullLocator())
        bottom.set_xlabel(f"{axis}, times {HYBRID}'s" if axis == "capsules per layer" else axis)
    panels[0][0].set_ylabel("ms")
    panels[1][0].set_ylabel("peak memory, MB")
    figure.suptitle(
        f"A {result['backend']} FREM training step of {HYBRID} (batch {result['batch']} where it is not what grows)"
    )


def draw_limits(figure: Any, result: Result) -> None:
    figure.set_size_inches(10, 4)
    axes = figure.subplots()
    flops, seconds, backend = result["flops"], result["seconds"], result["backend"].capitalize()

    def rate(name: str) -> float:
        return float(flops[name] / spread(seconds[name]).least / 1e9)

    labels = [layer_label(layer).replace(", ", "\n") for layer in result["layers"]]
    heights = {LABELS[m]: [rate(key(m, layer["name"])) for layer in result["layers"]] for m in METHODS}
    bars(axes, labels, heights, {LABELS[m]: color for m, color in METHOD_COLORS.items()}, "{:.0f}")
    peak = rate("matrix product")
    axes.axhline(peak, color="black", linewidth=1, linestyle="--", label=f"matrix product, {peak:.0f}")
    axes.set(
        ylabel="GFLOP/s, forward",
        title=f"{backend} routing kernels beside this machine's matrix product, batch {result['batch']}",
    )
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))


PLOTS: dict[str, Callable[[Any, Result], None]] = {
    "routing": draw_routing,
    "networks": draw_networks,
    "growth": draw_growth,
    "limits": draw_limits,
}
