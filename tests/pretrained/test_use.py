"""Pretrained networks by name, and what is refused."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import torchcaps
from torchcaps import create_model, list_pretrained
from torchcaps.cli.evaluate import evaluate_command
from torchcaps.cli.predict import predict_command
from torchcaps.errors import OptionError
from torchcaps.models import HybridNetwork
from torchcaps.models import pretrained as shipped
from torchcaps.models.files import ModelFileError
from torchcaps.models.pretrained import PretrainedError, shipped_folder

Output = pytest.CaptureFixture[str]


def test_names(tiny: Path) -> None:
    assert list_pretrained() == list_pretrained("hybrid32") == ["tiny"]
    assert list_pretrained("hybrid64") == []
    assert shipped.listing() == "tiny (hybrid32)"


def test_a_network_is_that_of_the_classifier(tiny: Path) -> None:
    classifier = torchcaps.load("tiny")
    network = create_model("hybrid32", pretrained="tiny")
    assert classifier.classes == tuple("0123456789")
    assert classifier.pipeline.resize == 18
    for name, value in classifier.network.state_dict().items():
        assert torch.equal(network.state_dict()[name], value)


def test_without_decoder(tiny: Path) -> None:
    whole, network = (create_model("hybrid32", pretrained="tiny", decoder=decoder) for decoder in (True, False))
    assert isinstance(network, HybridNetwork)
    assert network.decoder is None
    assert not any(name.startswith("decoder") for name in network.state_dict())
    image = torch.rand(2, 1, 16, 16)
    assert torch.equal(network(image).activation, whole(image).activation)
    with pytest.raises(RuntimeError, match="no decoder"):
        network.reconstruct(network(image))


def test_options_that_agree(tiny: Path) -> None:
    """Those in the file, those that it leaves at their defaults, and defaults that it does not have."""
    options = {"num_classes": 10, "image_size": 16, "routing": "frem", "kernel": "gaussian", "distance": "l1"}
    assert create_model("hybrid32", pretrained="tiny", beta_init="neutral", **options).image_size == 16


@pytest.mark.parametrize(
    ("option", "value", "has"),
    [
        ("num_classes", 5, "10"),
        ("image_size", 32, "16"),
        ("in_channels", 3, "1"),
        ("routing", "em", "'frem'"),
        ("iterations", 3, "2"),
        ("kernel", "epanechnikov", "'gaussian'"),
        ("distance", "l2", "'l1'"),
        ("residual", True, "False"),
        ("beta_init", "paper", "'neutral'"),
    ],
)
def test_options_in_conflict(tiny: Path, option: str, value: Any, has: str) -> None:
    message = f"{option}={value!r}: the pretrained weights 'tiny' have {option}={has}; leave the option out"
    with pytest.raises(OptionError, match=re.escape(message)):
        create_model("hybrid32", pretrained="tiny", **{option: value})


def test_where_and_in_which_type_it_is(tiny: Path) -> None:
    network = create_model("hybrid32", pretrained="tiny", dtype=torch.float64, device="cpu")
    expected = create_model("hybrid32", pretrained="tiny").state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(value, expected[name].to(value.dtype))
        assert value.dtype == torch.float64 or not value.is_floating_point()


def test_names_that_are_none(tiny: Path) -> None:
    there_are = re.escape("available: tiny (hybrid32)")
    with pytest.raises(OptionError, match=f"model 'hybrid32' has no pretrained weights 'huge'; {there_are}"):
        create_model("hybrid32", pretrained="huge")
    with pytest.raises(
        OptionError, match=f"pretrained is True, expected the name of a pretrained network; {there_are}"
    ):
        create_model("hybrid32", pretrained=True)
    with pytest.raises(OptionError, match=f"model 'hybrid64' has no pretrained weights 'tiny'; {there_are}"):
        create_model("hybrid64", pretrained="tiny")
    with pytest.raises(OptionError, match=f"no pretrained network 'huge'; {there_are}"):
        shipped_folder("huge")
    with pytest.raises(
        ModelFileError, match=r"there is no huge: .* name of a pretrained network \(tiny \(hybrid32\)\)"
    ):
        torchcaps.load("huge")
    with pytest.raises(TypeError, match="no option 'nonsense'"):
        create_model("hybrid32", pretrained="tiny", nonsense=1)


def test_without_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchcaps_weights", None)  # as if it were not installed
    assert list_pretrained() == []
    what_to_do = re.escape("none (in a clone: pip install ./weights)")
    with pytest.raises(OptionError, match=f"no pretrained weights 'mnist'; available: {what_to_do}"):
        create_model("hybrid32", pretrained="mnist")
    with pytest.raises(OptionError, match=f"no pretrained network 'mnist'; available: {what_to_do}"):
        shipped_folder("mnist")
    with pytest.raises(ModelFileError, match=rf"there is no mnist: .* a pretrained network \({what_to_do}\)"):
        torchcaps.load("mnist")


def test_they_need_nothing_but_torchcaps_and_the_weights() -> None:
    code = """
import sys
for name in ("lightning", "PIL", "tyro", "rich", "pooch", "filelock", "tensorboard", "matplotlib"):
    sys.modules[name] = None  # as if it were not installed
import torch, torchcaps
print(torchcaps.load("mnist").predict(torch.zeros(1, 1, 32, 32, dtype=torch.uint8)).names[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in "0123456789"


@pytest.mark.parametrize("file", ["model.safetensors", "model.json"])
def test_files_that_are_not_what_was_shipped(tiny: Path, file: str) -> None:
    path = tiny / "tiny" / file
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    for use in (lambda: torchcaps.load("tiny"), lambda: create_model("hybrid32", pretrained="tiny")):
        with pytest.raises(PretrainedError, match=rf"{file} is not the file that was shipped: .* install .* again"):
            use()
    path.unlink()
    with pytest.raises(PretrainedError, match=rf"{file} cannot be read \(No such file .*\): install .* again"):
        torchcaps.load("tiny")


def test_a_folder_of_that_name_comes_first(tiny: Path, run: Path) -> None:
    Path("tiny").mkdir()
    with pytest.raises(
        ModelFileError, match=r"tiny has no model.safetensors: .*the pretrained network is pretrained:tiny"
    ):
        torchcaps.load("tiny")
    for ours in (shipped_folder("tiny"), "pretrained:tiny", Path("pretrained:tiny")):
        assert torchcaps.load(ours).classes[0] == "0"
    for file in ("model.safetensors", "model.json"):
        shutil.copy(run / file, Path("tiny") / file)
    mine, shipped_network = torchcaps.load("tiny"), create_model("hybrid32", pretrained="tiny")
    weight = "class_capsules.weight"
    assert not torch.equal(mine.network.state_dict()[weight], shipped_network.state_dict()[weight])  # not rounded
    for ours in (
        torchcaps.load("pretrained:tiny").network,
        create_model("hybrid32", pretrained="pretrained:tiny"),
        create_model("hybrid32", pretrained="tiny"),
    ):
        assert torch.equal(ours.state_dict()[weight], shipped_network.state_dict()[weight])
    with pytest.raises(OptionError, match="no pretrained network 'huge'; available: tiny"):
        torchcaps.load("pretrained:huge")


def test_commands_take_the_name(tiny: Path, run: Path, capsys: Output) -> None:
    root = Path(json.loads((run / "run.json").read_text())["recipe"]["data"]["root"])
    evaluate_command([Path("tiny")], root=root, json=True)
    found = json.loads(capsys.readouterr().out)
    entry = shipped.read_manifest(tiny)["tiny"]
    assert (found["wrong"], found["images"], found["data"]) == (entry["wrong"], 30, "mnist")
    Path("tiny").mkdir()  # which a plain name would mean
    evaluate_command([Path("pretrained:tiny")], root=root, json=True)
    assert json.loads(capsys.readouterr().out)["wrong"] == entry["wrong"]
    Image.new("L", (20, 20)).save("black.png")
    predict_command(Path("pretrained:tiny"), [Path("black.png")], json=True)
    assert json.loads(capsys.readouterr().out)["images"][0]["class"] in "0123456789"
