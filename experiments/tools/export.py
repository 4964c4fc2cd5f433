"""Ship the network of a finished run: weights, card and fixed predictions."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor
from tyro.conf import Positional

from experiments.tools.card import PICTURES, Export, index, model_card
from torchcaps.classifier import evaluate, load, save
from torchcaps.classifier.classifier import Classifier
from torchcaps.data.locate import unofficial
from torchcaps.data.types import Split
from torchcaps.data.writing import whole_file
from torchcaps.errors import OptionError, UserError
from torchcaps.models.files import CARD, WEIGHTS
from torchcaps.models.pretrained import MANIFEST, read_manifest, sha256
from torchcaps.runs.folder import write_json
from torchcaps.runs.run import read_run
from torchcaps.runs.text import percent
from torchcaps.train.assemble import load_data
from torchcaps.train.recipe import read_recipe

OUTPUT = Path("weights/torchcaps_weights")
README, PREDICTIONS = "README.md", "predictions.json"
MOST_LOST = 1e-3  # rounding alone costs a tensor at most 2**-11 of its length; more is underflow


def export(run: Path, name: str, *, root: Path | None = None, note: str = "", output: Path = OUTPUT) -> Export:
    """Write weights, card and fixed predictions into ``output/name``, then its entry in the manifest.

    ``root`` is where the test images are, by default where they were in training; ``note`` is what has to be said of
    the data, by default that its files are not the official ones.
    """
    if not name or Path(name).name != name:
        raise OptionError(f"name is {name!r}, expected one without folders: the data set's, as in mnist")
    recipe = read_recipe(run)
    if recipe.data.data not in PICTURES:
        raise OptionError(
            f"{run} was trained on {recipe.data.data}: expected {', '.join(PICTURES)}: its card describes the set"
        )
    if not recipe.network.has_capsules:
        raise OptionError(f"{run} is of {recipe.network.model}, expected a network with capsules")
    recipe = recipe if root is None else recipe.with_fields(root=root)
    about = read_run(run)
    test = load_data(recipe).test
    if about.result["test_error"] is None or about.result["test_images"] != len(test):
        raise UserError(
            f"{run} was evaluated on {about.result['test_images']} test images, there are {len(test)}: "
            "expected a run with a test error, and --root with the data that it had"
        )
    origin = unofficial(recipe.data.data, recipe.data.root)
    note = note or origin.note
    classifier = load(run)
    check_half(classifier.network.state_dict())
    source = recipe.network.pretrained
    told = recipe.with_just(root=None, pretrained=source and Path(source).name)  # no folders of ours
    classifier.card = {"recipe": told.as_json(), "result": about.result}
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output) as workshop:  # until all is there, what was shipped before stays whole
        folder = Path(workshop)
        weights = save(classifier.half(), folder)
        shipped = load(folder)
        made = Export(
            name=name,
            classifier=shipped,
            recipe=recipe,
            run=about.card,
            result=about.result,
            note=note,
            unofficial=origin.files,
            wrong=evaluate([shipped], test).wrong,
            size=weights.stat().st_size,
        )
        (folder / README).write_text(model_card(made), encoding="utf-8")
        # In float64, so that float32 on any machine differs from it by its own rounding only.
        write_json(folder / PREDICTIONS, {"activation": activations_of_noise(load(folder).double())})
        (output / name).mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.replace(output / name / file.name)
    add_to_manifest(made, output)
    return made


def check_half(weights: dict[str, Tensor]) -> None:
    """Raise where half precision cannot hold the weights."""
    lost = nonzero = 0
    for name, value in weights.items():
        if not value.is_floating_point():  # batch norm's number of batches stays an integer
            continue
        half = value.half()
        if not half.isfinite().all():
            raise UserError(f"{name} has values up to {value.abs().max():.3g}, half precision ends at 65504")
        if (half.float() - value).norm() > MOST_LOST * value.norm():
            raise UserError(f"{name} has values of about {value.abs().mean():.1g}, too small for half precision")
        lost += int(((half == 0) & (value != 0)).sum())
        nonzero += int((value != 0).sum())
    if lost > MOST_LOST * nonzero:
        raise UserError(f"{lost:,} of {nonzero:,} weights would be zero in half precision")


def add_to_manifest(made: Export, output: Path) -> None:
    """Write the entry, with the checksum of every file, and the page that lists all."""
    paths = [output / made.name / file for file in (WEIGHTS, CARD, README, PREDICTIONS)]
    entry: dict[str, Any] = {
        "model": made.classifier.model,
        "data": made.title,
        "licence": PICTURES[made.recipe.data.data].licence,
        "epochs": made.result["epochs"],
        "wrong": made.wrong,
        "test_images": made.result["test_images"],
        "size": made.size,
        "files": {path.name: sha256(path) for path in paths},
    }
    before = read_manifest(output) if (output / MANIFEST).is_file() else {}
    manifest = dict(sorted({**before, made.name: entry}.items()))
    write_json(output / MANIFEST, manifest)
    with whole_file(output / README) as file:
        file.write(index(manifest).encode())


def main(
    run: Positional[Path], name: Positional[str], root: Path | None = None, note: str = "", output: Path = OUTPUT
) -> None:
    """Ship the network of a finished training run.

    Args:
        run: The run's folder.
        name: What it will be called: the data set's name.
        root: Where the data set's files are; default: where they were in training.
        note: What has to be said of the data wherever the error is given; default: "JPEG copy" and the like, where its
            files are not the official ones.
        output: Folder that gets a folder of that name; default: that of torchcaps-weights, from the
            top of the repository.
    """
    made = export(run, name, root=root, note=note, output=output)
    shipped, trained = made.wrong / made.result["test_images"], made.result["test_error"]
    print(f"{output / name}: {made.size / 1e6:.1f} MB, test error {percent(shipped)} (the run: {percent(trained)})")


IMAGES, BLOCK = 4, 4


def noise(classifier: Classifier) -> Split:
    """Images of random squares, at the size from which the network's crops are taken."""
    side = classifier.source_size
    blocks = -(-side // BLOCK)
    random = np.random.RandomState(0)  # the one generator whose numbers NumPy promises never to change
    coarse = random.randint(0, 256, (IMAGES, classifier.network.in_channels, blocks, blocks)).astype(np.uint8)
    fine = coarse.repeat(BLOCK, 2).repeat(BLOCK, 3)[:, :, :side, :side]  # [IMAGES, C, side, side]
    return Split(torch.from_numpy(fine.copy()), torch.zeros(IMAGES, dtype=torch.int64))


def activations_of_noise(classifier: Classifier) -> list[list[float]]:
    """Class activations ``[IMAGES, classes]``."""
    found: list[list[float]] = classifier.activations(classifier.prepare(noise(classifier))).tolist()
    return found


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except UserError as error:
        raise SystemExit(f"experiments.tools.export: {error}") from None
