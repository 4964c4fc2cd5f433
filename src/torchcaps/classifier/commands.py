"""``torchcaps eval`` and ``torchcaps predict``, as the command line calls them."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional


def evaluate_command(
    runs: Positional[list[Path]],
    crops: Literal[1, 5, 9, 13] = 1,
    data: str | None = None,
    root: Path | None = None,
    split: Literal["test", "validation"] = "test",
    json: bool = False,
) -> None:
    """How often a trained network is wrong: in all, by class, and what it takes for what.

    Several runs are evaluated together, as an ensemble: the mean of their activations decides.

    Args:
        runs: Folders that torchcaps train has left, or names of pretrained networks.
        crops: Average over this many crops of each image.
        data: Another data set by its name, or a folder of images with one subfolder a class; default: the run's own.
        root: Where the data set's files are.
        split: The images to evaluate on.
        json: Print one JSON object and nothing else.
    """
    from torchcaps.classifier.run_eval import EvaluateCall, run_eval

    run_eval(EvaluateCall(runs=runs, crops=crops, data=data, root=root, split=split, json=json))


def predict_command(
    run: Positional[Path],
    images: Positional[list[Path]],
    explain: bool = False,
    output: Path | None = None,
    json: bool = False,
    crops: Literal[1, 5, 9, 13] = 1,
) -> None:
    """What a trained network says of image files.

    Files that cannot be read are named and skipped; the exit code is then 1.

    Args:
        run: A folder that torchcaps train has left, or the name of a pretrained network.
        images: Image files of any size and mode, and folders of them.
        explain: Write a picture for each image: the input, its reconstruction, and where the votes came from.
        output: Folder for these pictures; default: explained.
        json: Print one JSON object and nothing else.
        crops: Average over this many crops of each image.
    """
    from torchcaps.classifier.run_predict import PredictCall, run_predict

    run_predict(PredictCall(run=run, images=images, explain=explain, output=output, json=json, crops=crops))
