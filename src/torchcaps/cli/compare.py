"""``torchcaps compare``: runs side by side, on the same images."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from tyro.conf import Positional

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.evaluation import evaluate_each
from torchcaps.classifier.metrics import calibration_error, top_error
from torchcaps.cli.held_out import Choice, load_images, load_networks
from torchcaps.cli.tables import interval_text, name_text, percent, side_by_side
from torchcaps.errors import OptionError
from torchcaps.report.compare import write_comparison
from torchcaps.report.comparison import Compared, Comparison, verdict
from torchcaps.runs.folder import RESULT, RUN
from torchcaps.runs.run import Run, read_run
from torchcaps.runs.text import NOTHING, duration, setting

PAGE = Path("compare.html")


@dataclass(frozen=True, kw_only=True)
class CompareCall(Choice):
    """What the user typed."""

    output: Path | None = None
    json: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be compared."""
        if len(self.runs) < 2:
            raise OptionError(f"torchcaps compare needs two runs or more, and got {len(self.runs)}")
        places = [run.expanduser().resolve() for run in self.runs]
        for place, run in zip(places, self.runs, strict=True):
            if places.count(place) > 1:
                raise OptionError(f"{run} is given twice: expected different runs")
        if self.output is not None and self.output.expanduser().is_dir():
            raise OptionError(f"--output {self.output} is a folder: expected the name of a file")


def compare_command(
    runs: Positional[list[Path]],
    output: Path | None = None,
    crops: Literal[1, 5, 9, 13] = 1,
    data: str | None = None,
    root: Path | None = None,
    split: Literal["test", "validation"] = "test",
    skip_bad: bool = False,
    json: bool = False,
) -> None:
    """Compare runs on the same images: settings, errors, curves, and the images that they disagree on.

    Two runs are also compared by McNemar's test.

    Args:
        runs: Folders of training runs, or names of pretrained networks; two or more.
        output: The page to write; default: compare.html.
        crops: Average over this many crops of each image.
        data: Another data set by name, or a folder of images with one subfolder per class; default: the runs' own.
        root: The folder of the data set's files.
        split: The images to evaluate on.
        skip_bad: In a folder of images, skip the files that cannot be read.
        json: Print one JSON object and nothing else; there is a page only with --output.
    """
    run_compare(
        CompareCall(
            runs=runs, output=output, crops=crops, data=data, root=root, split=split, skip_bad=skip_bad, json=json
        )
    )


def run_compare(call: CompareCall) -> None:
    """Evaluate, write the page, and show or print the results."""
    classifiers = load_networks(call)
    data = load_images(call, classifiers)
    evaluations = evaluate_each(classifiers, data.split, crops=call.crops)
    described = zip(short_names(call.runs), call.runs, classifiers, evaluations, strict=True)
    runs = [
        Compared(name, _run_of(path.expanduser(), network), network.network.parameter_count(), evaluation)
        for name, path, network, evaluation in described
    ]
    comparison = Comparison(runs, data.name, call.split, data.split)
    output = call.output if call.output is not None or call.json else PAGE
    page = None if output is None else write_comparison(comparison, output.expanduser())
    if call.json:
        print(json.dumps(as_json(call, comparison, page), indent=1))
    else:
        show(comparison, page)


def short_names(runs: list[Path]) -> list[str]:
    """The names of the folders, where these tell the runs apart; else what the user typed."""

    def short(run: Path) -> str:
        path = run.expanduser()
        if not path.exists():
            return str(run)  # a network of the package
        return (path if path.is_dir() else path.parent).resolve().name

    names = [short(run) for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _run_of(path: Path, classifier: Classifier) -> Run:
    """A run folder; of a network without one what its card tells."""
    folder = path if path.is_dir() else path.parent
    if path.exists() and (folder / RUN).is_file():
        return read_run(folder, finished=(folder / RESULT).is_file())
    result = classifier.card.get("result")
    return Run(card=classifier.card, result=result if isinstance(result, dict) else {}, rows=[])


def as_json(call: CompareCall, comparison: Comparison, page: Path | None) -> dict[str, Any]:
    """All numbers; shares are fractions. Settings are those that differ, with a value for each run."""
    test = comparison.mcnemar
    return {
        "data": comparison.data,
        "split": comparison.split,
        "crops": call.crops,
        "images": len(comparison.images),
        "runs": [
            {
                "run": str(path),
                "name": run.name,
                "error": run.evaluation.error,
                "interval": list(run.evaluation.interval),
                "wrong": run.evaluation.wrong,
                "top_5_error": top_error(run.evaluation),
                "calibration_error": calibration_error(run.evaluation),
                "parameters": run.parameters,
                "seconds": run.run.number("seconds"),
            }
            for path, run in zip(call.runs, comparison.runs, strict=True)
        ],
        "settings": comparison.settings,
        "mcnemar": None if test is None else {**test._asdict(), "verdict": verdict(_names(comparison), test)},
        "page": None if page is None else str(page),
    }


def show(comparison: Comparison, page: Path | None) -> None:
    """One table, and in words what the test says."""
    console = Console(highlight=False, markup=False)
    runs = comparison.runs
    seconds = [run.run.number("seconds") for run in runs]
    facts = {
        f"{comparison.split} error": [percent(run.evaluation.wrong, len(run.evaluation.label)) for run in runs],
        "95 % interval": [interval_text(run.evaluation) for run in runs],
        "parameters": [f"{run.parameters:,}" for run in runs],
        "training time": [NOTHING if value is None else duration(value) for value in seconds],
    }
    settings = {name: [setting(value) for value in values] for name, values in comparison.settings.items()}
    console.print(f"{comparison.data}, {comparison.split}: {len(comparison.images):,} images")
    for table in side_by_side(console, _names(comparison), facts, settings):
        console.print(table)
    if comparison.mcnemar is not None:
        console.print(name_text(verdict(_names(comparison), comparison.mcnemar)), overflow="fold")
    if page is not None:
        console.print(f"page: {name_text(page)}", soft_wrap=True)


def _names(comparison: Comparison) -> list[str]:
    return [run.name for run in comparison.runs]
