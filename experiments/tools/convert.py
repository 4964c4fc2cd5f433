"""Bring files of older versions up to date: results, ``run.json`` and ``model.json``.

``python -m experiments.tools.convert PATH ...`` takes files, and folders with all the JSON files in them. What is up to
date already stays as it is, byte for byte.
"""

import json
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional

from experiments.results import result_text
from torchcaps.data.writing import whole_file
from torchcaps.models.files import CARD, FORMAT
from torchcaps.models.pretrained import MANIFEST, read_manifest, sha256
from torchcaps.runs.folder import write_json
from torchcaps.train.recipe import PART_OF, PARTS, Recipe


def convert(values: dict[str, Any]) -> dict[str, Any]:
    """What a file of this version would hold."""
    values = dict(values)
    if isinstance(values.get("recipe"), dict):
        values["recipe"] = in_parts(values["recipe"])
    if isinstance(values.get("card"), dict) and "recipe" in values["card"]:
        values["card"] = {**values["card"], "recipe": in_parts(values["card"]["recipe"])}
    if values.get("format") == 1 and "options" in values:
        values["format"] = FORMAT
        values["options"] = {("num_classes" if key == "classes" else key): v for key, v in values["options"].items()}
    return values


def in_parts(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe whose fields stood side by side; those that it is too old to have are the defaults."""
    if set(PARTS) <= recipe.keys() and all(isinstance(recipe[part], dict) for part in PARTS):
        return recipe
    found = Recipe().as_json()
    for key, value in recipe.items():
        if key == "name":
            found["name"] = value
        else:
            found[PART_OF[key]][key] = value
    return found


def convert_file(path: Path) -> bool:
    """Convert one file in place; says whether it had to be."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict) or (new := convert(values)) == values:
        return False
    with whole_file(path) as file:
        file.write(as_text(path, new).encode())
    return True


def as_text(path: Path, values: dict[str, Any]) -> str:
    """As the program writes such a file."""
    if "results" in path.parts:
        return result_text(values)
    return json.dumps(values, indent=1) + "\n"


def renew_checksums(network: Path) -> None:
    """Of the files of a shipped network, in the manifest beside its folder; a run's network has none."""
    root = network.parent
    if not (root / MANIFEST).is_file() or network.name not in (manifest := read_manifest(root)):
        return
    files = manifest[network.name]["files"]
    files |= {name: sha256(network / name) for name in files}
    write_json(root / MANIFEST, manifest)


def main(paths: Positional[list[Path]]) -> None:
    """Bring results, run.json and model.json files of older versions up to date.

    Args:
        paths: Files, or folders with files in them.
    """
    files = [file for path in paths for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    changed = [file for file in files if convert_file(file)]
    for network in {file.parent for file in changed if file.name == CARD}:
        renew_checksums(network)
    print(f"{len(changed)} of {len(files)} files converted")


if __name__ == "__main__":
    tyro.cli(main)
