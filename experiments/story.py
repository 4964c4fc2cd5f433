"""What carried over and what did not, as pictures: drawn from the results' files alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from statistics import mean
from typing import Any

import numpy as np

from experiments.cells import TESTED_ITERATIONS, Cell, Run
from experiments.figures import COLORS, IMAGES, require_figure
from experiments.results import Result
from experiments.tables import NOT_RUN, Results
from experiments.trial_tables import families
from torchcaps.runs.text import count

GREY = "#8a8a8a"
PALE = "#9fc9c5"
# label: the six-epoch trials of it, its color
COMPARED = {"CNN": ("cnn-norm-6-epochs", GREY), "FREM": ("head-6-epochs", COLORS["FREM"])}


@dataclass(frozen=True)
class Drawing:
    """A picture and what it shows."""

    title: str
    name: str  # of the file, without .png
    caption: str
    draw: Callable[[Any], None] | None  # into matplotlib's figure; None where there is nothing to draw

    def as_markdown(self) -> str:
        if self.draw is None:
            return f"{self.title}: {NOT_RUN}."
        return f"![{self.title}]({IMAGES}/{self.name}.png)\n\n{self.caption}"

    def files(self) -> dict[str, bytes]:
        """The picture for the markdown file."""
        if self.draw is None:
            return {}
        figure: Any = require_figure()(layout="constrained", dpi=110)
        self.draw(figure)
        file = BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
        return {f"{self.name}.png": file.getvalue()}


def toys_drawing(trials: Results) -> Drawing:
    """The validation error of each of smallNORB's 25 training toys, when it was held out."""
    runs = in_common({label: runs_of(name, trials) for label, (name, _) in COMPARED.items()})
    found = {label: toys_of(of) for label, of in runs.items()}
    caption = (
        f"{len(in_all(found))} of smallNORB's 25 training toys, held out of training in turn: the share of its "
        "pictures that each network misses after six epochs, the mean over the seeds that were run."
    )
    return by_toy("results-toys", caption, found)


def objects_drawing(cells: Sequence[Cell], results: Results, budget: str) -> Drawing:
    """The error on each of smallNORB's test toys, and how much of the difference is the choice of toys."""
    for size in dict.fromkeys(cell.labels[1] for cell in reversed(cells)):  # the last that was run
        jobs = {label: [cell.job for cell in cells if cell.labels[:2] == (label, size)] for label in COMPARED}
        runs = {
            label: [results[job.name] for job in of if isinstance(job, Run) and job.name in results]
            for label, of in jobs.items()
        }
        found = {label: toys_of(of) for label, of in in_common(runs).items()}
        if in_all(found):
            break
    caption = (
        f"The test toys, {size}: the share of its pictures that each network misses, the mean over the seeds that both "
        "were run with."
    )
    if toys := in_all(found):
        most = [f"{count(toys_with_most(errors), 'toy')} ({label})" for label, errors in found.items()]
        caption += f" Nine tenths of the errors are on {' and on '.join(most)}."
        differences = [100 * (found["FREM"][toy] - found["CNN"][toy]) for toy in toys]
        low, high = interval_of_mean(differences)
        caption += (
            f" FREM minus CNN: {mean(differences):+.2f} points; with other toys of the same kind it would lie "
            f"between {low:+.2f} and {high:+.2f} (95 %, bootstrap over the {len(toys)} toys)."
        )
    return by_toy(f"results-test-toys-{budget}", caption, found)


def toys_with_most(errors: Mapping[str, float], share: float = 0.9) -> int:
    """How many toys, those with the most errors first, have this share of all errors."""
    shares = np.cumsum(sorted(errors.values(), reverse=True))
    return 1 + int(np.searchsorted(shares, share * shares[-1]))


def by_toy(name: str, caption: str, found: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Errors of each network on each toy that all of them have, ``{network: {toy: error}}``."""
    toys = sorted(in_all(found), key=lambda toy: found["CNN"][toy])

    def draw(figure: Any) -> None:
        figure.set_size_inches(8, 0.7 + 0.24 * len(toys))
        axes = figure.subplots()
        most = max(100 * errors[toy] for errors in found.values() for toy in toys)
        for label, errors in found.items():
            marker, color = "o" if label == "FREM" else "s", COMPARED[label][1]
            axes.plot([100 * errors[toy] for toy in toys], toys, marker, color=color, label=label, markersize=5)
        axes.set(xlabel="error on its pictures, %", xlim=(-0.02 * most, 1.02 * most))
        axes.grid(axis="y", color="#eeeeee")
        tidy(axes)

    return Drawing("Error by toy", name, caption, draw if toys else None)


def in_all(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The toys that every network has an error for."""
    return sorted(set.intersection(*(set(errors) for errors in found.values())))


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean lies in 95 % of 10,000 samples drawn from the values, as many each, with repetition."""
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values))).mean(1)  # [10000]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def learning_drawing(trials: Results) -> Drawing:
    """Training and validation error by epoch, the mean over folds and seeds."""
    found = in_common({label: runs_of(name, trials) for label, (name, _) in COMPARED.items()})
    common = [label for label, runs in found.items() if runs]

    def draw(figure: Any) -> None:
        figure.set_size_inches(9, 3.2)
        for axes, title in zip(figure.subplots(1, 2), ("training", "validation"), strict=True):
            for label in common:
                courses = [getattr(run, title) for run in found[label]]
                by_epoch = [100 * mean(values) for values in zip(*courses, strict=False)]
                axes.plot(range(1, 1 + len(by_epoch)), by_epoch, color=COMPARED[label][1], label=label, marker=".")
            axes.set(title=f"{title} error, %", xlabel="epoch", ylim=(0, None))
            tidy(axes)

    caption = (
        "By epoch, the mean over the folds and seeds that were run with both: errors on toys in training, and on those "
        "held out."
    )
    return Drawing("Learning curves", "results-learning", caption, draw if common else None)


def iterations_drawing(cells: Sequence[Cell], results: Results, budget: str) -> Drawing:
    """The test error by the number of iterations, of networks that were trained with two."""
    lines = {cell.labels[0]: results[cell.job.name].iterations_error for cell in cells if cell.job.name in results}
    lines = {label: errors for label, errors in lines.items() if errors}

    def draw(figure: Any) -> None:
        figure.set_size_inches(6, 3.2)
        axes = figure.subplots()
        for label, errors in lines.items():
            points = sorted(errors.items())
            axes.plot(
                [k for k, _ in points], [100 * e for _, e in points], color=COLORS[label], label=label, marker="o"
            )
        axes.set(xlabel="iterations in the test", ylabel="test error, %", ylim=(0, None), xticks=TESTED_ITERATIONS)
        tidy(axes)

    caption = "Networks that were trained with two iterations, tested with others."
    return Drawing("Errors by iterations", f"results-iterations-{budget}", caption, draw if lines else None)


def viewpoints_drawing(cells: Sequence[Cell], results: Results, budget: str) -> Drawing:
    """Errors from new viewpoints: a bar per network, a dot per seed."""
    errors: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        factor, label, _ = cell.labels
        if (found := results.get(cell.job.name)) is not None and found.error is not None:
            errors.setdefault(factor, {}).setdefault(label, []).append(100 * found.error)

    def draw(figure: Any) -> None:
        figure.set_size_inches(12, 3.2)
        panels = figure.subplots(1, len(errors), squeeze=False, sharey=True)[0]
        for axes, (factor, by_label) in zip(panels, errors.items(), strict=True):
            for place, (label, values) in enumerate(by_label.items()):
                color = PALE if "one iteration" in label else COLORS["FREM"] if "FREM" in label else GREY
                axes.bar(place, mean(values), 0.7, color=color)
                axes.plot([place] * len(values), values, ".", color="black")
            axes.set_xticks(range(len(by_label)), [label.replace(", ", ",\n") for label in by_label], fontsize=8)
            axes.set(title=f"new {factor}s")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set(ylabel="test error, %")

    caption = "Test toys of the built-in set from viewpoints that were not in training; a dot is a seed."
    return Drawing("Errors from new viewpoints", f"results-viewpoints-{budget}", caption, draw if errors else None)


def runs_of(name: str, trials: Mapping[str, Result]) -> list[Result]:
    """The runs of a trial in all folds and with all seeds."""
    found = families(trials)
    return [run for family, runs in found.items() if family in (name, f"{name}-seed-1") for run in runs.values()]


def in_common(runs: Mapping[str, Sequence[Result]]) -> dict[str, list[Result]]:
    """Of each network the runs whose fold and seed all of them have: folds differ more than networks do."""

    def place(run: Result) -> tuple[int, int]:
        return int(run.recipe["fold"]), run.seeds[0]

    shared = set.intersection(*({place(run) for run in of} for of in runs.values()))
    return {label: [run for run in of if place(run) in shared] for label, of in runs.items()}


def toys_of(runs: Sequence[Result]) -> dict[str, float]:
    """The error of each toy, the mean over the runs that held it out."""
    toys = sorted({toy for run in runs for toy in run.held_out})
    return {toy: mean(run.held_out[toy] for run in runs if toy in run.held_out) for toy in toys}


def tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
