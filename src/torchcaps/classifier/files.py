"""Classifiers on disk: ``model.safetensors``, and a JSON beside it that says what they are."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.pipeline import Pipeline
from torchcaps.data.writing import whole_file
from torchcaps.models.files import (
    CARD,
    FORMAT,
    WEIGHTS,
    ModelFileError,
    check_numbers,
    check_weights,
    load_weights,
    read_card,
)
from torchcaps.models.pretrained import PREFIX, list_pretrained, listing, shipped_folder


def save(classifier: Classifier, folder: str | Path) -> Path:
    """Write the weights and then the card, which makes them complete, into a folder; returns the weights' path."""
    folder = Path(folder)
    card = {
        "format": FORMAT,
        "model": classifier.model,
        "options": classifier.options,
        "classes": classifier.classes,
        "pipeline": asdict(classifier.pipeline),
        "card": classifier.card,
    }
    try:
        text = json.dumps(card, indent=1) + "\n"
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the network cannot be described in JSON ({error}): expected options that are numbers or names"
        ) from error
    weights = {name: value.contiguous() for name, value in classifier.network.state_dict().items()}
    with whole_file(folder / WEIGHTS) as file:
        file.write(safetensors.torch.save(weights, {"format": "pt"}))
    with whole_file(folder / CARD) as file:
        file.write(text.encode())
    return folder / WEIGHTS


def load(path: str | Path) -> Classifier:
    """The classifier that a training run left, ready to use: its folder, or the path of its ``model.safetensors``.

    Where there is no such folder or file, also the name of a pretrained network: see `list_pretrained`. It is always
    that one with a prefix, as in ``load("pretrained:mnist")``.

    >>> load("runs/turntable-frem-quick-1").predict(images).names  # doctest: +SKIP
    ['animal', 'car']
    """
    weights, card_path = find_files(Path(path).expanduser())
    card = read_card(card_path)
    for part in ("options", "pipeline"):
        check_numbers(card_path, card.get(part))
    with torch.device("meta"):  # a card can ask for any size: the weights' file has to agree before memory is taken
        check_weights(from_card(card, card_path).network, weights)
    classifier = from_card(card, card_path)
    load_weights(classifier.network, weights)
    return classifier.eval()


def from_card(card: dict[str, Any], path: Path) -> Classifier:
    """The classifier that a card describes, with new weights."""
    try:
        pipeline = Pipeline(**{name: _tuple(value) for name, value in card["pipeline"].items()})
        classes, about = card["classes"], card["card"]
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise TypeError(f"classes is {str(classes)[:50]}, expected a list of names")
        if not isinstance(about, dict):
            raise TypeError(f"card is {str(about)[:50]}, expected a JSON object")
        return Classifier(card["model"], card["options"], pipeline, tuple(classes), about)
    except Exception as error:  # whatever a changed card makes a network stumble over
        reason = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{path} does not describe a network of this version ({reason})") from error


def find_files(path: Path) -> tuple[Path, Path]:
    """The weights and the card of a run, or what to do about their absence."""
    if str(path).startswith(PREFIX):
        path = shipped_folder(str(path))
    is_pretrained = str(path) in list_pretrained()
    # Those of os.path: pathlib's raise where a folder above may not be entered.
    if not os.path.exists(path):  # the user's own files come first: no name of ours may stand in for them
        if not is_pretrained:
            raise ModelFileError(
                f"there is no {path}: expected the folder of a training run, its {WEIGHTS}, "
                f"or the name of a pretrained network ({listing()})"
            )
        path = shipped_folder(str(path))
    weights = path / WEIGHTS if os.path.isdir(path) else path
    if not os.path.isfile(weights):
        hidden = f"; the pretrained network is {PREFIX}{path}"
        is_run = os.path.isfile(os.path.join(path, "run.json"))
        what_to_do = (
            f"finish the interrupted run with torchcaps train --resume {path}"
            if is_run
            else "expected the folder of a finished training run, or of a saved classifier"
        )
        raise ModelFileError(f"{path} has no {WEIGHTS}: {what_to_do}" + hidden * is_pretrained)
    card = weights.with_name(CARD) if weights.name == WEIGHTS else weights.with_suffix(".json")
    if not os.path.isfile(card):
        raise ModelFileError(f"{weights} has no {card.name} beside it, which says what network it is: copy it too")
    return weights, card


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
