"""``torchcaps predict``: classify image files."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor
from tyro.conf import Positional

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.explain import DEFAULT, Explanation, Method, explain
from torchcaps.classifier.files import load
from torchcaps.classifier.image_files import find_images, read_images
from torchcaps.classifier.picture import free_name, picture, write_picture
from torchcaps.cli.per_image import check_target, write_csv
from torchcaps.cli.tables import Cell, fitting_table, name_text
from torchcaps.data.decode import import_pillow
from torchcaps.data.types import DataError, Split
from torchcaps.errors import OptionError, UserError

BEST = 3  # classes that are shown
FOLDER = Path("explained")


@dataclass(frozen=True, kw_only=True)
class PredictCall:
    """What the user typed."""

    run: Path
    images: list[Path]
    explain: bool = False
    method: Method | None = None
    output: Path | None = None
    csv: Path | None = None
    json: bool = False
    crops: int = 1

    def __post_init__(self) -> None:
        """Refuse what would be ignored."""
        if self.output is not None and not self.explain:
            raise OptionError("--output is the folder for the pictures of --explain: give both or neither")
        if self.method is not None and not self.explain:
            raise OptionError(f"--method {self.method} is a method of --explain: give both or neither")
        if self.explain and self.crops != 1:
            raise OptionError(f"--explain looks at one crop: leave --crops {self.crops} out")


class Found(NamedTuple):
    """The prediction for one file."""

    file: Path
    activation: Tensor  # [classes]
    picture: Path | None
    explanation: Explanation | None

    def best(self, classes: tuple[str, ...]) -> list[tuple[str, float]]:
        """The classes of the highest activations, best first."""
        order = self.activation.argsort(descending=True, stable=True)[:BEST].tolist()
        return [(classes[label], float(self.activation[label])) for label in order]


def predict_command(
    run: Positional[Path],
    images: Positional[list[Path]],
    explain: bool = False,
    method: Method | None = None,
    output: Path | None = None,
    csv: Path | None = None,
    json: bool = False,
    crops: Literal[1, 5, 9, 13] = 1,
) -> None:
    """Classify image files with a trained network.

    Files that cannot be read are listed and skipped; the exit code is then 1.

    Args:
        run: The folder of a training run, or the name of a pretrained network.
        images: Image files of any size and mode, or folders of them; for a network of two cameras LEFT,RIGHT.
        explain: Write a picture per image: the input, its reconstruction, and what supports the class.
        method: How to explain; default: integrated-gradients, the best in docs/explanations.md.
        output: The folder for these pictures; default: explained.
        csv: Write the result of each image to this file, one row per image.
        json: Print one JSON object and nothing else.
        crops: Average over this many crops of each image.
    """
    pictures: dict[str, Any] = {"explain": explain, "method": method, "output": output}
    run_predict(PredictCall(run=run, images=images, **pictures, csv=csv, json=json, crops=crops))


def run_predict(call: PredictCall) -> None:
    """Classify all files that can be read; exits with 1 where there were others."""
    import_pillow()
    if not call.images:
        raise OptionError("predict needs image files or folders after the run")
    check_target(call.csv)
    classifier = load(call.run)
    channels = classifier.network.in_channels
    if channels > 3:
        raise UserError(
            f"{call.run} takes images of {channels} channels, which no file has: "
            "give its classifier arrays [N, channels, H, W] in Python"
        )
    images, skipped = find_images(call.images, channels)
    found: list[Found] = []
    for names, pixels, bad in read_images(images, classifier.source_size, channels):
        skipped |= bad
        if names:
            found += _classify(call, classifier, {name: images[name][0] for name in names}, pixels)
    if not found:
        raise DataError("\n".join(["none of the images can be used:", *skipped_lines(skipped)]))
    if call.csv is not None:
        activations = torch.stack([of_file.activation for of_file in found])  # [files, classes]
        write_csv(call.csv, classifier.classes, activations, files=[of_file.file for of_file in found])
    if call.json:
        print(json.dumps(as_json(call, classifier, found, skipped), indent=1))
    else:
        show(call, classifier, found)
    if skipped:
        print("\n".join(["torchcaps: skipped", *skipped_lines(skipped)]), file=sys.stderr)
        raise SystemExit(1)


def _classify(call: PredictCall, classifier: Classifier, images: dict[Path, Path], pixels: Tensor) -> list[Found]:
    """``images``: by what the user is shown, the file after which a picture is named."""
    split = classifier.prepare(Split(pixels, torch.zeros(len(pixels), dtype=torch.int64)))
    activations = classifier.activations(split, crops=call.crops)  # [n, classes]
    if not call.explain:
        return [Found(path, activation, None, None) for path, activation in zip(images, activations, strict=True)]
    found = []
    explanations = explain(classifier, split, call.method or DEFAULT)
    for (path, file), activation, explanation in zip(images.items(), activations, explanations, strict=True):
        target = free_name(call.output or FOLDER, file.stem)
        write_picture(picture(explanation, classifier.classes[explanation.label]), target)
        found.append(Found(path, activation, target, explanation))
    return found


def skipped_lines(skipped: dict[Path, str]) -> list[str]:
    """Each file with the reason."""
    return [f"  {name_text(path)}: {name_text(reason)}" for path, reason in skipped.items()]


def as_json(call: PredictCall, classifier: Classifier, found: list[Found], skipped: dict[Path, str]) -> dict[str, Any]:
    """Of each file the best classes, and the activations of all in the order of ``classes``; with --explain the heat.

    The heat is that of each pixel of the crop that the network sees, row by row; it sums to 1.
    """

    def entry(of_file: Found) -> dict[str, Any]:
        best = [{"class": name, "activation": value} for name, value in of_file.best(classifier.classes)]
        entry = {"file": str(of_file.file), **best[0], "best": best, "activations": of_file.activation.tolist()}
        if of_file.explanation is None:
            return entry
        return {
            **entry,
            "picture": str(of_file.picture),
            "method": of_file.explanation.method,
            "heat": [[float(f"{heat:.4g}") for heat in row] for row in of_file.explanation.heat.tolist()],
        }

    return {
        "run": str(call.run),
        "classes": list(classifier.classes),
        "images": [entry(of_file) for of_file in found],
        "skipped": [{"file": str(path), "reason": reason} for path, reason in skipped.items()],
    }


def show(call: PredictCall, classifier: Classifier, found: list[Found]) -> None:
    """A row for each file."""
    rows: list[list[Cell]] = []
    for of_file in found:
        (name, value), *others = of_file.best(classifier.classes)
        following = Text(", ").join(Text.assemble(name_text(other), f" {less:.2f}") for other, less in others)
        drawn = [] if of_file.picture is None else [name_text(of_file.picture)]
        rows.append([name_text(of_file.file), name_text(name), f"{value:.2f}", following, *drawn])
    console = Console(highlight=False)
    headings = ("file", "class", "activation", "next", *(["picture"] if call.explain else []))
    console.print(fitting_table(console, headings, rows, drop=("next",)))
    if call.csv is not None:
        console.print(f"results of each image: {name_text(call.csv)}", markup=False, soft_wrap=True)
