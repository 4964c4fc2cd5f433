"""From a run folder to the files that are shipped."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro
from safetensors.torch import load_file

from experiments.tools.export import check_half, export, main
from torchcaps.classifier import evaluate, load
from torchcaps.cli.train import train_command
from torchcaps.errors import OptionError, UserError
from torchcaps.models.pretrained import read_manifest
from torchcaps.train.assemble import load_data
from torchcaps.train.command_line import command_line
from torchcaps.train.recipe import PART_OF, Recipe, read_recipe
from torchcaps.train.recipes import recipe


def test_weights_are_the_run_s_in_half_precision(tiny: Path, run: Path) -> None:
    found, trained = (load_file(folder / "model.safetensors") for folder in (tiny / "tiny", run))
    assert found.keys() == trained.keys()
    for name, value in found.items():
        assert value.dtype == torch.float16
        assert torch.equal(value, trained[name].half())


def test_the_error_is_that_of_the_shipped_file(tiny: Path, run: Path) -> None:
    entry = read_manifest(tiny)["tiny"]
    measured = evaluate([load(tiny / "tiny")], load_data(read_recipe(run)).test)
    assert (entry["wrong"], entry["test_images"], entry["epochs"]) == (measured.wrong, 30, 1)
    card = (tiny / "tiny" / "README.md").read_text()
    assert f"**{100 * measured.error:.2f}\N{NO-BREAK SPACE}%** ({measured.wrong} of 30 images)" in card


def test_the_card_has_what_a_reader_needs(tiny: Path, run: Path) -> None:
    card = (tiny / "tiny" / "README.md").read_text()
    about, result = (json.loads((run / name).read_text()) for name in ("run.json", "result.json"))
    for words in (
        "# tiny: hybrid32 with FREM routing, trained on MNIST (noise)",
        "CC BY-SA 3.0",
        "not the official ones: train-images-idx3-ubyte",
        f"| test error of the run, in float32 | {100 * result['test_error']:.2f}\N{NO-BREAK SPACE}% |",
        f"1 epoch, {result['steps']} steps",
        about["machine"],
        "| seed | 0 |",
        "one seed",
        'torchcaps.load("tiny")',
        'create_model("hybrid32", pretrained="tiny")',
        command_line(read_recipe(run)),
        "Weighted Kernel Density Estimation",
    ):
        assert words in card, words
    described = json.loads((tiny / "tiny" / "model.json").read_text())["card"]
    assert described["recipe"] == {**about["recipe"], "data": {**about["recipe"]["data"], "root": None}}
    assert described["result"] == result


def test_the_card_of_a_run_on_some_viewpoints(tiny: Path, run: Path, tmp_path: Path) -> None:
    assert "familiar" not in (tiny / "tiny" / "README.md").read_text()
    folder = shutil.copytree(run, tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "familiar_error": 0.25}))
    export(folder, "tiny", output=tmp_path / "other")
    card = (tmp_path / "other/tiny/README.md").read_text()
    assert "| its error on familiar viewpoints | 25.00\N{NO-BREAK SPACE}% |" in card


def test_a_second_one_and_the_first_again(tiny: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_manifest(tiny)
    for name in ("another", "tiny"):
        tyro.cli(main, args=[str(run), name, "--note", "noise", "--output", str(tiny)])
        assert f"{tiny / name}: " in capsys.readouterr().out
    manifest = read_manifest(tiny)
    assert list(manifest) == ["another", "tiny"]
    assert manifest["tiny"] == before["tiny"]  # the same bytes in every file


def test_files_that_are_not_official_are_named_without_being_asked(run: Path, tmp_path: Path) -> None:
    made = export(run, "tiny", output=tmp_path)
    assert made.title == "MNIST (not the official files)"
    assert "train-images-idx3-ubyte" in made.unofficial
    card = (tmp_path / "tiny/README.md").read_text()
    assert "These files of the run were not the official ones: train-images-idx3-ubyte" in card
    assert read_manifest(tmp_path)["tiny"]["data"] == made.title


def test_an_export_that_breaks_off_leaves_what_was_there(
    tiny: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    before = {path: path.read_bytes() for path in tiny.rglob("*") if path.is_file()}
    monkeypatch.setattr("experiments.tools.export.evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(run, "tiny", note="other noise", output=tiny)
    assert {path: path.read_bytes() for path in tiny.rglob("*") if path.is_file()} == before


def test_what_export_refuses(run: Path, tmp_path: Path) -> None:
    def changed(file: str, **changes: Any) -> Path:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(run, folder)
        content = json.loads((folder / file).read_text())
        for key, value in changes.items():
            part = content["recipe"][PART_OF[key]] if "recipe" in content else content
            part[key] = value
        (folder / file).write_text(json.dumps(content))
        return folder

    for folder, name, note, message in (
        (run, "a/b", "noise", "name is 'a/b', expected one without folders"),
        (run, "", "noise", "name is ''"),
        (
            changed("run.json", data="/my/photos", root=None),
            "tiny",
            "noise",
            "trained on /my/photos: expected mnist",
        ),
        (
            changed("run.json", model="cnn32", loss="cross-entropy", reconstruction=0.0),
            "tiny",
            "noise",
            "is of cnn32, expected a network with capsules",
        ),
        (changed("result.json", test_images=7), "tiny", "noise", "evaluated on 7 test images, there are 30"),
        (changed("result.json", test_error=None), "tiny", "noise", "expected a run with a test error"),
        (tmp_path, "tiny", "noise", "not the folder of a training run"),
    ):
        with pytest.raises(UserError, match=message):
            export(folder, name, note=note, output=tmp_path / "package")
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 7e4], "w has values up to 7e.04, half precision ends at 65504"),
        ([3e-8, -2e-8], "w has values of about .e-08, too small"),
        ([1.0, *[1e-9] * 9], "9 of 1,010 weights would be zero"),
    ],
)
def test_weights_that_half_precision_cannot_hold(values: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_half({"fine": torch.ones(1000), "w": torch.tensor(values)})


def test_weights_that_half_precision_holds() -> None:
    check_half({"w": torch.randn(1000), "zero": torch.zeros(3), "large": torch.tensor([65504.0]), "one": torch.ones(1)})
    check_half({"num_batches_tracked": torch.tensor(10**6)})


@pytest.mark.parametrize(
    "expected",
    [
        recipe("mnist-frem"),
        recipe("smallnorb-frem-quick", resize=None, standardise="set", brightness=0.25, validation="none", seed=4),
        recipe("fashion-mnist-frem", residual=False, class_shared=True, routing_options={"kernel": "gaussian"}),
        replace(recipe("mnist-em", rate=2.5e-3), name="of another name"),
        replace(recipe("cifar10-cnn", epochs=3, flip=False), name="of another name"),
    ],
    ids=command_line,
)
def test_what_to_type_gives_the_recipe(expected: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = []
    monkeypatch.setattr("torchcaps.train.run.train", lambda recipe, **_: followed.append(recipe))
    train, arguments = train_command(command_line(expected).split()[2:])
    tyro.cli(train, args=arguments)
    [found] = followed
    assert {**found.as_json(), "name": ""} == {**expected.as_json(), "name": ""}


def test_recipes_that_no_command_follows() -> None:
    with pytest.raises(OptionError, match="there is no recipe '/my/photos-frem'"):
        command_line(Recipe.of(data="/my/photos"))
