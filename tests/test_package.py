"""The package as a whole: what it ships, and what importing it costs."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires, version
from importlib.resources import files

import pytest

import torchcaps
import torchcaps.functional
import torchcaps.models
import torchcaps.nn

IMPORTS = """
import json, sys
import torch, numpy
before = set(sys.modules)
import torchcaps
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_import_adds_nothing_beyond_torch() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    added = json.loads(done.stdout)
    top = {name.partition(".")[0] for name in added}
    assert top - set(sys.stdlib_module_names) == {"safetensors", "torchcaps"}
    assert not [name for name in added if name.startswith("torch.")]
    assert "torchcaps.cli" not in added


@pytest.mark.parametrize(
    ("imports", "given", "wanted"),
    [
        ("import torchcaps", None, "PASSIVE"),
        ("import torchcaps", "OMP_WAIT_POLICY=ACTIVE", "ACTIVE"),
        ("import torchcaps", "TORCHCAPS_KEEP_ENVIRONMENT=1", "None"),
        ("import torch, torchcaps", None, "None"),  # too late: torch has read it
    ],
)
def test_waiting_threads_sleep_unless_the_user_says_otherwise(imports: str, given: str | None, wanted: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given is not None:
        name, _, value = given.partition("=")
        environment[name] = value
    code = f"import os; {imports}; print(os.environ.get('OMP_WAIT_POLICY'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == wanted


def test_typed() -> None:
    assert files("torchcaps").joinpath("py.typed").is_file()


def test_version() -> None:
    assert torchcaps.__version__ == version("torchcaps")


def test_public_names_exist() -> None:
    for module in (torchcaps, torchcaps.functional, torchcaps.models, torchcaps.nn):
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_parts_are_imported_when_asked_for() -> None:
    code = "import torchcaps; torchcaps.data.load; torchcaps.train.train; torchcaps.classifier.explain; torchcaps.runs"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_public() -> None:
    assert {"create_model", "list_models", "record_routing", "Capsules"} <= set(torchcaps.__all__)
    layers = {"PrimaryCapsules", "CapsuleConv2d", "ClassCapsules", "PoseResidual", "Decoder"}
    assert layers <= set(torchcaps.nn.__all__)


def test_core_dependencies_are_few() -> None:
    core = {line.split(">")[0].split(";")[0].strip() for line in requires("torchcaps") or [] if "extra ==" not in line}
    assert core == {"torch", "numpy", "safetensors"}
