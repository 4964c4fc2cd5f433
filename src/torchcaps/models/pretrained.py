"""Trained networks by name: where their files are, whether these are whole, and networks made of them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchcaps.errors import OptionError, UserError
from torchcaps.models.files import CARD, WEIGHTS, load_weights, read_card
from torchcaps.models.network import Network

ROOT = Path(__file__).parent.parent / "pretrained"
MANIFEST = "manifest.json"


class PretrainedError(UserError):
    """A file of the package that is not what was shipped."""


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """What `experiments.tools.export` wrote of each network, by name."""
    manifest: dict[str, dict[str, Any]] = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    return manifest


def list_pretrained(model: str | None = None) -> list[str]:
    """Names of the trained networks in the package, or of those that are a ``model``, in alphabetical order."""
    return sorted(name for name, entry in read_manifest(ROOT).items() if model in (None, entry["model"]))


def listing() -> str:
    """All of them with their networks, for a message."""
    manifest = read_manifest(ROOT)
    return ", ".join(f"{name} ({manifest[name]['model']})" for name in list_pretrained()) or "none in this version"


def shipped_folder(name: str) -> Path:
    """The folder of a trained network, its files checked: what ``torchcaps.load`` takes."""
    if name not in list_pretrained():
        raise OptionError(f"there is no pretrained network {name!r}; there are {listing()}")
    folder = ROOT / name
    for file, wanted in read_manifest(ROOT)[name]["files"].items():
        check_file(folder / file, wanted)
    return folder


def check_file(path: Path, wanted: str) -> None:
    """Raise unless a file has the checksum of the manifest."""
    try:
        found = sha256(path)
    except OSError as error:
        raise PretrainedError(f"{path} cannot be read ({error.strerror or error}): install torchcaps again") from error
    if found != wanted:
        raise PretrainedError(
            f"{path} is not the file that was shipped: its sha256 is {found}, wanted {wanted}; install torchcaps again"
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
    if name not in list_pretrained(model):
        raise OptionError(f"model {model!r} has no pretrained weights {name!r}; there are {listing()}")
    folder = shipped_folder(name)
    options = read_card(folder / CARD)["options"]
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
    return network.train()  # as every new model is
