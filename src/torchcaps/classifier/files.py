"""Classifiers on disk: ``model.safetensors``, and a JSON beside it that says what they are."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch

from torchcaps.classifier.classifier import Classifier
from torchcaps.data.pipeline import Pipeline
from torchcaps.data.writing import whole_file
from torchcaps.models.files import CARD, FORMAT, WEIGHTS, ModelFileError, load_weights, read_card
from torchcaps.models.pretrained import list_pretrained, listing, shipped_folder


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
            f"the network cannot be described in JSON ({error}): wanted options that are numbers or names"
        ) from error
    weights = {name: value.contiguous() for name, value in classifier.network.state_dict().items()}
    with whole_file(folder / WEIGHTS) as file:
        file.write(safetensors.torch.save(weights, {"format": "pt"}))
    with whole_file(folder / CARD) as file:
        file.write(text.encode())
    return folder / WEIGHTS


def load(path: str | Path) -> Classifier:
    """The classifier that a training run left, ready to use: its folder, or the path of its ``model.safetensors``.

    Where there is no such folder or file, also the name of a network inside the package: see `list_pretrained`.

    >>> load("runs/turntable-frem-quick-1").predict(images).names  # doctest: +SKIP
    ['animal', 'car']
    """
    weights, card_path = find_files(Path(path).expanduser())
    card = read_card(card_path)
    try:
        pipeline = Pipeline(**{name: _tuple(value) for name, value in card["pipeline"].items()})
        classes = tuple(str(name) for name in card["classes"])
        classifier = Classifier(card["model"], card["options"], pipeline, classes, card["card"])
    except Exception as error:  # whatever a changed card makes a network stumble over
        reason = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{card_path} does not describe a network of this version ({reason})") from error
    load_weights(classifier.network, weights)
    return classifier.eval()


def find_files(path: Path) -> tuple[Path, Path]:
    """The weights and the card of a run, or what to do about their absence."""
    is_pretrained = str(path) in list_pretrained()
    # Those of os.path: pathlib's raise where a folder above may not be entered.
    if not os.path.exists(path):  # the user's own files come first: no name of ours may stand in for them
        if not is_pretrained:
            raise ModelFileError(
                f"there is no {path}: wanted the folder of a training run, its {WEIGHTS}, "
                f"or the name of a pretrained network ({listing()})"
            )
        path = shipped_folder(str(path))
    weights = path / WEIGHTS if os.path.isdir(path) else path
    if not os.path.isfile(weights):
        hidden = f"; the pretrained network is in torchcaps.models.shipped_folder({str(path)!r})"
        raise ModelFileError(
            f"{path} has no {WEIGHTS}: finish an interrupted run with torchcaps train --resume {path}"
            + hidden * is_pretrained
        )
    card = weights.with_name(CARD) if weights.name == WEIGHTS else weights.with_suffix(".json")
    if not os.path.isfile(card):
        raise ModelFileError(f"{weights} has no {card.name} beside it, which says what network it is: copy it too")
    return weights, card


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
