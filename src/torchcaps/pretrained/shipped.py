"""Which networks are inside the package, and whether their files are still what was shipped."""

import hashlib
import json
from pathlib import Path
from typing import Any

from torchcaps.errors import OptionError, UserError

ROOT = Path(__file__).parent
MANIFEST = "manifest.json"


class PretrainedError(UserError):
    """A file of the package that is not what was shipped."""


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """What `torchcaps.pretrained.export` wrote of each network, by name."""
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
