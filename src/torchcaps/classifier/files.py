"""Classifiers on disk: ``model.safetensors``, and a JSON beside it that says what they are."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.pipeline import Pipeline
from torchcaps.data.writing import whole_file
from torchcaps.errors import UserError

WEIGHTS, CARD = "model.safetensors", "model.json"
FORMAT = 1


class ModelFileError(UserError):
    """A file of weights, or its card, that cannot be used."""


def save(classifier: Classifier, folder: str | Path) -> Path:
    """Write the weights and then the card, which makes them complete, into a folder; returns the weights' path."""
    from safetensors.torch import save as to_bytes

    folder = Path(folder)
    weights = {name: value.contiguous() for name, value in classifier.network.state_dict().items()}
    with whole_file(folder / WEIGHTS) as file:
        file.write(to_bytes(weights, {"format": "pt"}))
    card = {
        "format": FORMAT,
        "model": classifier.model,
        "options": classifier.options,
        "classes": classifier.classes,
        "pipeline": asdict(classifier.pipeline),
        "card": classifier.card,
    }
    with whole_file(folder / CARD) as file:
        file.write((json.dumps(card, indent=1) + "\n").encode())
    return folder / WEIGHTS


def load(path: str | Path) -> Classifier:
    """The classifier that a training run left, ready to use: its folder, or the path of its ``model.safetensors``.

    >>> load("runs/turntable-frem-quick-1").predict(images).names  # doctest: +SKIP
    ['animal', 'car']
    """
    path = Path(path).expanduser()
    weights = path / WEIGHTS if path.is_dir() else path
    card_path = weights.with_name(CARD) if weights.name == WEIGHTS else weights.with_suffix(".json")
    for file in (weights, card_path):
        if not file.is_file():
            unfinished = " (an interrupted run is finished by --resume)" if path.is_dir() else ""
            raise ModelFileError(f"there is no {file}: wanted the folder of a finished training run{unfinished}")
    card = _read_card(card_path)
    try:
        pipeline = Pipeline(**{name: _tuple(value) for name, value in card["pipeline"].items()})
        classifier = Classifier(card["model"], card["options"], pipeline, tuple(card["classes"]), card["card"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{card_path} does not describe a network of this version: {error}") from error
    _load_weights(classifier, weights)
    return classifier.eval()


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise ModelFileError(f"{path} has format {found}, wanted {FORMAT}: it is of another version of torchcaps")
    return dict(card)


def _load_weights(classifier: Classifier, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a whole safetensors file ({error}): it may be truncated, copy it again"
        ) from error
    problem = mismatch(classifier.network.state_dict(), weights)
    if problem:
        raise ModelFileError(f"{path} is of another network than {CARD} beside it says: {problem}")
    classifier.network.load_state_dict(weights)


def mismatch(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> str:
    """How weights differ from those that a network has, or nothing."""
    for name, value in wanted.items():
        if name not in found:
            return f"{name} is missing"
        if found[name].shape != value.shape:
            return f"{name} has shape {list(found[name].shape)}, the network wants {list(value.shape)}"
    extra = next((name for name in found if name not in wanted), None)
    return f"the network has no {extra}" if extra else ""


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
