"""Trained networks by name: where their files are, whether these are whole, and networks made of them."""

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from torchcaps.errors import OptionError, UserError
from torchcaps.models.files import CARD, WEIGHTS, load_weights, read_card
from torchcaps.models.network import Network

MANIFEST = "manifest.json"
PREFIX = "pretrained:"  # of a name that no folder or file of the user's may stand in for


class PretrainedError(UserError):
    """A file of the weights that is not what was shipped."""


def weights_folder() -> Path | None:
    """The folder of the package ``torchcaps-weights``, where that is installed."""
    try:
        return Path(str(files("torchcaps_weights")))
    except ModuleNotFoundError:
        return None


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """What `experiments.tools.export` wrote of each network, by name."""
    manifest: dict[str, dict[str, Any]] = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def list_pretrained(model: str | None = None) -> list[str]:
    """Names of the trained networks that are installed, or of those that are a ``model``, in alphabetical order."""
    return sorted(name for name, entry in _installed().items() if model in (None, entry["model"]))


def listing() -> str:
    """All of them with their networks, for a message."""
    found = ", ".join(f"{name} ({entry['model']})" for name, entry in sorted(_installed().items()))
    return found or "none (in a clone: pip install ./weights)"


def shipped_folder(name: str) -> Path:
    """The folder of a trained network, its files checked: what ``torchcaps.load`` takes."""
    name = name.removeprefix(PREFIX)
    root = weights_folder()
    if root is None or name not in list_pretrained():
        raise OptionError(f"there is no pretrained network {name!r}; available: {listing()}")
    folder = root / name
    for file, expected in read_manifest(root)[name]["files"].items():
        check_file(folder / file, expected)
    return folder


def _installed() -> dict[str, dict[str, Any]]:
    root = weights_folder()
    return {} if root is None else read_manifest(root)


def check_file(path: Path, expected: str) -> None:
    """Raise unless a file has the checksum of the manifest."""
    try:
        found = sha256(path)
    except OSError as error:
        reason = error.strerror or error
        raise PretrainedError(f"{path} cannot be read ({reason}): install torchcaps-weights again") from error
    if found != expected:
        raise PretrainedError(
            f"{path} is not the file that was shipped: its sha256 is {found}, expected {expected}; "
            "install torchcaps-weights again"
        )


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pretrained_network(
    name: str, model: str, build: Callable[..., Network], given: dict[str, Any], defaults: dict[str, Any]
) -> Network:
    """The network of that name, float32, without its decoder where that is asked for.

    ``build`` makes the ``model``; ``given`` are the caller's options, which may only say what the network is anyway;
    ``defaults`` are those of the options that its file leaves out.
    """
    if not isinstance(name, str):
        raise OptionError(f"pretrained is {name!r}, expected the name of a pretrained network; available: {listing()}")
    if name.removeprefix(PREFIX) not in list_pretrained(model):
        raise OptionError(f"model {model!r} has no pretrained weights {name!r}; available: {listing()}")
    folder = shipped_folder(name)
    options = read_card(folder / CARD)["options"]
    place = {option: given.pop(option) for option in ("device", "dtype") if option in given}
    built = {**defaults, **options}
    for option, value in given.items():
        if value != built[option] and (option, value) != ("decoder", False):
            raise OptionError(
                f"{option}={value!r}: the pretrained weights {name!r} have {option}={built[option]!r}; "
                "leave the option out, or train a network of your own"
            )
    network = build(**options)
    load_weights(network, folder / WEIGHTS)
    if not given.get("decoder", True):
        network.drop_decoder()
    return network.to(**place).train()  # as every new model is
