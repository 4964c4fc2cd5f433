"""Networks on disk: ``model.safetensors``, and a JSON beside it that says which network it is."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from torchcaps.errors import UserError
from torchcaps.models.network import Network

WEIGHTS, CARD = "model.safetensors", "model.json"
FORMAT = 2
NUMBERS = ("F16", "BF16", "F32", "F64", "I64")  # types that a file of weights may have, as it names them

# What no card may exceed: beyond it a network would fill the memory, or never answer. Layers are held by their weights.
LARGEST = 1_000_000
SIDE = 2048
LIMITS = {"image_size": SIDE, "crop": SIDE, "resize": SIDE, "shift": SIDE, "paddings": 64, "iterations": 100}


class ModelFileError(UserError):
    """A file of weights, or its card, that cannot be used."""


def read_card(path: Path) -> dict[str, Any]:
    """What the JSON beside the weights says."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not valid JSON ({error}): copy it again") from error
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise ModelFileError(
            f"{path} has format {found}, expected {FORMAT}: use the version of torchcaps that wrote it, or train again"
        )
    return dict(card)


def check_numbers(path: Path, values: Any, name: str = "") -> None:
    """Raise where a card has a number that no network needs, before anything is built from it."""
    if isinstance(values, dict):
        for key, value in values.items():
            check_numbers(path, value, key)
    elif isinstance(values, list):
        for value in values:
            check_numbers(path, value, name)
    elif isinstance(values, int | float):
        limit = LIMITS.get(name, LARGEST)
        if not (math.isfinite(values) and abs(values) <= limit):
            expected = f"at most {limit}" if math.isfinite(values) else "a finite number"
            raise ModelFileError(f"{path} says {name}={values:.7g}, expected {expected}: the file is damaged")


def load_weights(network: Network, path: Path) -> None:
    """Put a file of weights into a network, or say why it cannot be; nothing is unpickled."""
    check_weights(network, path)
    with _readable(path):
        weights = safetensors.torch.load_file(path)
    broken = next((name for name, value in weights.items() if not value.isfinite().all()), None)
    if broken:
        raise ModelFileError(f"{path} holds weights that are not finite, in {broken}: train again at a lower rate")
    network.load_state_dict(weights)


def check_weights(network: Network, path: Path) -> None:
    """Raise unless a file holds the weights of a network, which may be on the meta device; only its header is read."""
    with _readable(path), safetensors.safe_open(path, "pt") as file:
        headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        shapes = {name: header.get_shape() for name, header in headers.items()}
        types = {name: header.get_dtype() for name, header in headers.items()}
    problem = mismatch({name: value.shape for name, value in network.state_dict().items()}, shapes)
    odd = next((f"{name} is of type {kind}" for name, kind in types.items() if kind not in NUMBERS), "")
    if problem or odd:
        raise ModelFileError(f"{path} does not match its model.json ({problem or odd}): copy both from one run")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What can be wrong with a file of weights, in our words."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{path} is not a valid safetensors file ({error}): it may be truncated; copy it again"
        ) from error


def mismatch(expected: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]) -> str:
    """How the shapes of weights differ from those that a network has, or nothing."""
    for name, shape in expected.items():
        if name not in found:
            return f"{name} is missing"
        if list(found[name]) != list(shape):
            return f"{name} has shape {list(found[name])}, the network has {list(shape)}"
    extra = next((name for name in found if name not in expected), None)
    return f"the network has no {extra}" if extra else ""
