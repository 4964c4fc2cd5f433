"""What is in the distributions that are built from this repository, and what they say of themselves."""

import json
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from email.message import Message
from hashlib import sha256
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "weights"


def build(project: Path, hook: str, output: Path, settings: dict[str, str]) -> Path:
    """Call a hook of a project's build backend, without fetching anything."""
    backend = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["build-backend"]
    code = f"import {backend} as backend; backend.{hook}({str(output)!r}, {settings!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = output.iterdir()
    return made


def metadata(wheel: ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


@pytest.mark.slow
def test_the_wheel_has_no_weights(tmp_path: Path) -> None:
    wheel = ZipFile(build(ROOT, "build_wheel", tmp_path, {"wheel.cmake": "false", "wheel.py-api": "py3"}))
    names = wheel.namelist()
    assert "torchcaps/__init__.py" in names
    assert "torchcaps/py.typed" in names
    assert not [name for name in names if name.endswith(".safetensors")]
    assert {PurePosixPath(name).parts[0] for name in names} == {"torchcaps", "torchcaps-0.1.0.dist-info"}
    about = metadata(wheel)
    assert about["License-Expression"] == "Apache-2.0"
    required = about.get_all("Requires-Dist", [])
    assert "safetensors>=0.5" in required
    assert [line for line in required if "torchcaps-weights" in line] == ['torchcaps-weights; extra == "weights"']


@pytest.mark.slow
def test_the_sources_build_but_hold_no_weights(tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "build_sdist", tmp_path, {})) as archive:
        names = {PurePosixPath(name).relative_to(PurePosixPath(name).parts[0]) for name in archive.getnames()}
    tops = {name.parts[0] for name in names}
    assert {"native", "src", "tests", "pyproject.toml", "LICENSE", "README.md"} <= tops
    assert not {"weights", "results"} & tops
    assert not [name for name in names if name.suffix == ".safetensors"]


@pytest.mark.slow
def test_the_weights_are_what_the_manifest_says(tmp_path: Path) -> None:
    wheel = ZipFile(build(WEIGHTS, "build_wheel", tmp_path, {}))
    manifest = json.loads(wheel.read("torchcaps_weights/manifest.json"))
    for name, entry in manifest.items():
        for file, expected in entry["files"].items():
            assert sha256(wheel.read(f"torchcaps_weights/{name}/{file}")).hexdigest() == expected
    about = metadata(wheel)
    for name, entry in manifest.items():
        (row,) = (line for line in str(about.get_payload()).splitlines() if line.startswith(f"| [{name}]"))
        assert f"| {entry['licence']} |" in row


def test_every_network_s_licence_is_named_and_enclosed() -> None:
    project = tomllib.loads((WEIGHTS / "pyproject.toml").read_text())["project"]
    manifest = json.loads((WEIGHTS / "torchcaps_weights/manifest.json").read_text())
    licences = {name: entry["licence"] for name, entry in manifest.items()}
    assert project["license"] == " AND ".join(sorted(set(licences.values())))
    assert project["license-files"] == ["LICENSES/*.txt"]
    assert {path.stem for path in (WEIGHTS / "LICENSES").iterdir()} == set(licences.values())
    for name, licence in licences.items():
        assert f'"{name}" (torchcaps_weights/{name})' in (WEIGHTS / f"LICENSES/{licence}.txt").read_text()
        assert f"| licence | {licence} |" in (WEIGHTS / f"torchcaps_weights/{name}/README.md").read_text()
