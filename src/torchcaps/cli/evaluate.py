"""``torchcaps eval``: networks on the images that they were not trained on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from tyro.conf import Positional

from torchcaps.classifier.evaluation import Evaluation, ensemble, evaluate, evaluate_each
from torchcaps.classifier.metrics import BINS, TOP, calibration_error, figures_of_classes, top_error
from torchcaps.cli.held_out import Choice, Data, load_images, load_networks
from torchcaps.cli.per_image import check_target, write_csv
from torchcaps.cli.tables import class_table, confusion_table, error_text, name_text, run_table
from torchcaps.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EvaluateCall(Choice):
    """What the user typed."""

    csv: Path | None = None
    json: bool = False


@dataclass(frozen=True)
class Found:
    """The results."""

    each: list[Evaluation]
    together: Evaluation
    familiar: Evaluation | None = None  # of all networks together


def evaluate_command(
    runs: Positional[list[Path]],
    crops: Literal[1, 5, 9, 13] = 1,
    data: str | None = None,
    root: Path | None = None,
    split: Literal["test", "validation"] = "test",
    skip_bad: bool = False,
    csv: Path | None = None,
    json: bool = False,
) -> None:
    """Evaluate a trained network: its error with a 95 % interval, precision and recall by class, and its confusions.

    Several runs are evaluated as an ensemble, by the mean of their activations.

    Args:
        runs: Folders of training runs, or names of pretrained networks.
        crops: Average over this many crops of each image.
        data: Another data set by name, or a folder of images with one subfolder per class; default: the run's own.
        root: The folder of the data set's files.
        split: The images to evaluate on.
        skip_bad: In a folder of images, skip the files that cannot be read.
        csv: Write the result of each image to this file, one row per image.
        json: Print one JSON object and nothing else.
    """
    run_eval(
        EvaluateCall(runs=runs, crops=crops, data=data, root=root, split=split, skip_bad=skip_bad, csv=csv, json=json)
    )


def run_eval(call: EvaluateCall) -> None:
    """Evaluate, and show or print the results."""
    if not call.runs:
        raise UserError("expected the folder of a training run, or the name of a pretrained network")
    check_target(call.csv)
    classifiers = load_networks(call)
    data = load_images(call, classifiers)
    each = evaluate_each(classifiers, data.split, crops=call.crops)
    familiar = data.familiar if call.split == "test" else None
    on_familiar = None if familiar is None else evaluate(classifiers, familiar, crops=call.crops)
    found = Found(each, ensemble(each), on_familiar)
    if call.csv is not None:
        together = found.together
        write_csv(call.csv, together.classes, together.activation, files=data.split.files, label=together.label)
    if call.json:
        print(json.dumps(as_json(call, data, found), indent=1))
    else:
        show(call, data, found)


def as_json(call: EvaluateCall, data: Data, found: Found) -> dict[str, Any]:
    """All numbers; shares are fractions, null where there is nothing to divide by, and without familiar viewpoints."""
    together = found.together
    return {
        "error": together.error,
        "interval": list(together.interval),
        "top_5_error": top_error(together),
        "calibration_error": calibration_error(together),
        "familiar_error": None if found.familiar is None else found.familiar.error,
        "familiar_interval": None if found.familiar is None else list(found.familiar.interval),
        "wrong": together.wrong,
        "images": len(together.label),
        "data": data.name,
        "split": call.split,
        "crops": call.crops,
        "runs": [
            {"run": str(run), "error": one.error, "interval": list(one.interval)}
            for run, one in zip(call.runs, found.each, strict=True)
        ],
        "classes": [
            {**one._asdict(), "error": one.wrong / one.images if one.images else None}
            for one in figures_of_classes(together)
        ],
        "confusion": together.confusion.tolist(),
    }


def show(call: EvaluateCall, data: Data, found: Found) -> None:
    """Tables, and the error as the last line."""
    each, together = found.each, found.together
    console = Console(highlight=False, markup=False)
    note = f" ({data.note})" if data.note else ""
    console.print(f"{data.name}, {call.split}: {len(together.label):,} images{note}")
    console.print(class_table(console, together))
    console.print(confusion_table(console, together))
    if len(each) > 1:
        console.print(run_table(console, call.runs, each, together))
    if call.csv is not None:
        console.print(f"results of each image: {name_text(call.csv)}", soft_wrap=True)
    print(f"calibration error ({BINS} bins): {100 * calibration_error(together):.2f} %")
    if (top := top_error(together)) is not None:
        print(f"top-{TOP} error: {100 * top:.2f} %")
    if found.familiar is not None:
        print(f"error on familiar viewpoints: {error_text(found.familiar)}")
    print(f"error: {error_text(together)}")
