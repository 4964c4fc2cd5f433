"""From the folder of a finished run to its result: one JSON, and a picture of what its decoder makes."""

from pathlib import Path
from typing import Any, Literal

import torch

from experiments.cells import Ensemble, Run
from experiments.results import Places, data_title, read_values, write_result
from experiments.states import differences, fields_of
from torchcaps.classifier import Classifier, evaluate, load
from torchcaps.data.types import Split
from torchcaps.data.writing import whole_file
from torchcaps.errors import UserError
from torchcaps.models.files import ModelFileError
from torchcaps.nn.routed import RoutedLayer
from torchcaps.report.charts import thin
from torchcaps.report.pictures import png, strip
from torchcaps.runs.folder import RESULT, RunFolderError
from torchcaps.runs.run import read_run
from torchcaps.train.assemble import load_data
from torchcaps.train.recipe import Recipe, read_recipe
from torchcaps.types import Classified

CURVES = ("step", "epoch", "output_loss", "reconstruction_loss")
MOST_ROWS = 200


def record(run: Run, places: Places, failed: str | None = None) -> None:
    """Write the result of a run, the JSON last: it says that all is there. ``failed`` says why training broke off."""
    if failed is None and run.recipe.has_decoder and run.trial is None:
        classifier, test = load(places.folder(run)), load_data(run.recipe).test
        with whole_file(places.picture(run)) as file:
            file.write(png(reconstructions(classifier, test)))
    values = run_values(run, places, failed)
    if failed is None and run.crops > 1:
        test = load_data(run.recipe).test
        values["crops_error"] = evaluate([load(places.folder(run))], test, crops=run.crops).error
    if failed is None and run.by_object:
        values["held_out"] = errors_by_object(places.folder(run), run.recipe, "test")
    if failed is None and run.iterations:
        network, test = load(places.folder(run)), load_data(run.recipe).test
        values["iterations_error"] = {str(k): tested_with(k, network, test) for k in run.iterations}
    if failed is None and run.trial is not None:
        values["held_out"] = errors_by_object(places.folder(run), run.recipe, "validation")
    write_result(places.result(run), values)


def run_values(run: Run, places: Places, failed: str | None) -> dict[str, Any]:
    """The JSON of a run."""
    found = read_run(places.folder(run), finished=failed is None)
    card, result = found.card, found.result
    rows = [[rounded(row.get(name)) for name in CURVES] for row in thin(found.by_steps(), MOST_ROWS)]
    values = {
        "name": run.name,
        "recipe": recipe_values(run.recipe),
        "seed": run.recipe.optimisation.seed,
        **{name: card.get(name) for name in ("machine", "threads", "precision", "versions", "started")},
        "data": data_values(run.recipe, found.part("data")),
        "epochs": run.recipe.optimisation.epochs,
        "steps": result.get("steps", found.rows[-1]["step"] if found.rows else 0),
        "test_error": result.get("test_error"),
        "test_images": result.get("test_images", 0),
        "familiar_error": result.get("familiar_error"),
        "failed": failed,
        "validation_error": [[rounded(x), rounded(y)] for x, y in found.course("validation_error")],
        "training_error": [[rounded(x), rounded(y)] for x, y in found.by_epoch("training_error")],
        "seconds": rounded(result.get("seconds", found.rows[-1]["seconds"] if found.rows else 0.0)),
        "images_per_second": rounded(result.get("images_per_second")),
        "curves": {"columns": CURVES, "rows": rows},
    }
    return values if run.trial is None else values | {"trial": run.trial.as_json()}


def tested_with(iterations: int, classifier: Classifier, test: Split) -> float:
    """The test error with so many iterations in every layer, however many the network was trained with."""
    for layer in classifier.modules():
        if isinstance(layer, RoutedLayer):
            layer.routing_options = {**layer.routing_options, "iterations": iterations}
    return evaluate([classifier], test).error


def errors_by_object(folder: Path, recipe: Recipe, part: Literal["validation", "test"]) -> dict[str, float]:
    """The error on each object of a split, ``{"car 4": 0.02}``; on each class, where objects are not known."""
    splits = load_data(recipe)
    split: Split | None = getattr(splits, part)
    if split is None:
        return {}
    wrong = evaluate([load(folder)], split).predicted != split.labels  # [N]
    names = [splits.classes[label] for label in split.labels.tolist()]
    if "instance" in split.factors and (split.factors["instance"] >= 0).all():
        names = [f"{name} {toy}" for name, toy in zip(names, split.factors["instance"].tolist(), strict=True)]
    of_name = {name: torch.tensor([other == name for other in names]) for name in sorted(set(names))}
    return {name: rounded(wrong[mask].double().mean().item()) for name, mask in of_name.items()}


def record_ensemble(ensemble: Ensemble, places: Places) -> None:
    """Evaluate the networks of an ensemble together; it has failed where one of them has."""
    members = [read_values(places.result(run)) or {} for run in ensemble.members]
    marks = [{name: member.get(name) for name in ("test_error", "started")} for member in members]
    failed = [f"{member['name']}: {member['failed']}" for member in members if member.get("failed")]
    evaluation = None
    if not failed:
        networks = [load_member(run, places) for run in ensemble.members]
        evaluation = evaluate(networks, load_data(ensemble.recipe).test)
    same = {name: members[0].get(name) for name in ("machine", "threads", "precision", "versions", "data", "epochs")}
    values = {
        "name": ensemble.name,
        "recipe": recipe_values(ensemble.recipe),
        "seeds": [run.recipe.optimisation.seed for run in ensemble.members],
        "members": {run.name: mark for run, mark in zip(ensemble.members, marks, strict=True)},
        **same,
        "test_error": None if evaluation is None else evaluation.error,
        "test_images": 0 if evaluation is None else len(evaluation.label),
        "failed": "; ".join(failed) or None,
        "seconds": rounded(sum(member.get("seconds") or 0.0 for member in members)),
    }
    write_result(places.result(ensemble), values)


def load_member(run: Run, places: Places) -> Classifier:
    """The network of a run, whose result may have come without its folder, as in a fresh clone."""
    folder = places.folder(run)
    try:
        network = load(folder)
        if differs := differences(fields_of(read_recipe(folder)), fields_of(run.recipe)):
            raise RunFolderError(f"those in {folder} are of another recipe: {'; '.join(differs)}")
        if not (folder / RESULT).is_file():
            raise RunFolderError(f"the training in {folder} did not come to its end")
        return network
    except (ModelFileError, RunFolderError) as error:
        raise UserError(
            f"the ensemble needs the weights of {run.name}: {error}; remove {places.result(run)} to train it again"
        ) from error


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """The recipe without where this machine has its data."""
    return recipe.with_fields(root=None).as_json()


def data_values(recipe: Recipe, data: dict[str, Any]) -> dict[str, Any]:
    """What the run was trained on."""
    names = ("set", "note", "train", "validation", "test")
    return {"title": data_title(recipe.data.data, recipe.data.root), **{name: data.get(name) for name in names}}


def rounded(value: Any) -> Any:
    """Six digits are enough for a curve, and for a time."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


@torch.no_grad()
def reconstructions(classifier: Classifier, test: Split) -> torch.Tensor:
    """A test image of each class above its reconstruction: ``[4, 65, 33 classes - 1]`` uint8.

    It is the middle one of the class's images, whatever the network makes of it.
    """
    of_classes = [(test.labels == label).nonzero().squeeze(1) for label in sorted(set(test.labels.tolist()))]
    index = torch.stack([of_class[len(of_class) // 2] for of_class in of_classes])  # [classes]
    split = classifier.prepare(test.take(index))
    batch = classifier.pipeline.evaluate(split.images, split.labels)
    output = classifier(batch.image)
    assert isinstance(output, Classified)
    rows = [strip(batch.target), strip(classifier.network.reconstruct(output))]  # [4, 32, width] each
    gap = torch.zeros_like(rows[0][:, :1])  # transparent
    return torch.cat([rows[0], gap, rows[1]], 1)
