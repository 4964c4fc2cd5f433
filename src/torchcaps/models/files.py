"""Networks on disk: ``model.safetensors``, and a JSON beside it that says which network it is."""

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from torchcaps.errors import UserError
from torchcaps.models.network import Network

WEIGHTS, CARD = "model.safetensors", "model.json"
FORMAT = 2


class ModelFileError(UserError):
    """A file of weights, or its card, that cannot be used."""


def read_card(path: Path) -> dict[str, Any]:
    """What the JSON beside the weights says."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a whole JSON file ({error}): copy it again") from error
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise ModelFileError(
            f"{path} has format {found}, expected {FORMAT}: use the version of torchcaps that wrote it, or train again"
        )
    return dict(card)


def load_weights(network: Network, path: Path) -> None:
    """Put a file of weights into a network, or say why it cannot be; nothing is unpickled."""
    try:
        weights = safetensors.torch.load_file(path)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{path} is not a whole safetensors file ({error}): it may be truncated, copy it again"
        ) from error
    problem = mismatch(network.state_dict(), weights)
    if problem:
        raise ModelFileError(f"{path} is of another network than its card says ({problem}): copy both from one run")
    broken = next((name for name, value in weights.items() if not value.isfinite().all()), None)
    if broken:
        raise ModelFileError(f"{path} holds weights that are not finite, in {broken}: train again at a lower rate")
    network.load_state_dict(weights)


def mismatch(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """How weights differ from those that a network has, or nothing."""
    for name, value in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name].shape != value.shape:
            return f"{name} has shape {list(found[name].shape)}, the network has {list(value.shape)}"
    extra = next((name for name in found if name not in expected), None)
    return f"the network has no {extra}" if extra else ""
