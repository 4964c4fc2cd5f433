"""``torchcaps eval`` and ``torchcaps predict``."""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tyro
from PIL import Image
from rich.console import Console

from torchcaps.classifier import Classifier, Evaluation, Explanation, evaluate, load, save
from torchcaps.classifier.picture import GAP, PANEL, TITLE_SIZE, picture
from torchcaps.cli.evaluate import evaluate_command
from torchcaps.cli.predict import predict_command
from torchcaps.cli.tables import confusion_table, name_text
from torchcaps.data import DataError, load_folder
from torchcaps.data.decode import read_image
from torchcaps.errors import UserError
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.recipe import Recipe
from torchcaps.train.run import describe

Tiny = Callable[..., Classifier]
Output = pytest.CaptureFixture[str]
NAMES = ("ant", "bee", "cat")


def call(command: Callable[..., None], *arguments: object) -> None:
    """As the command line does."""
    tyro.cli(command, args=[str(argument) for argument in arguments])


def make_run(folder: Path, photos: Path, **fields: Any) -> Path:
    """A run folder as training leaves it, with weights from the start."""
    recipe = Recipe.of(data=str(photos), size=16, first_channels=16, conv_init="torch", routing="em", **fields)
    splits = load_data(recipe)
    torch.manual_seed(recipe.optimisation.seed)
    save(make_classifier(recipe, splits, make_pipeline(recipe, splits)), folder)
    describe(folder, recipe, splits, 1)
    return folder


@pytest.fixture
def run(photos: Path, tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", photos, transform_std=0.5)


@pytest.fixture
def saved(tiny: Tiny, tmp_path: Path) -> Path:
    """A grey network whose second class rich would take for markup; no run folder around it."""
    save(tiny(decoder=True), tmp_path / "saved")
    return tmp_path / "saved"


# eval


@pytest.mark.parametrize("split", ["test", "validation"])
def test_eval_on_the_run_s_own_data(run: Path, photos: Path, capsys: Output, split: str) -> None:
    call(evaluate_command, run, "--split", split)
    shown = capsys.readouterr().out
    splits = load_data(Recipe.of(data=str(photos), size=16))
    expected = evaluate([load(run)], getattr(splits, split))
    assert shown.splitlines()[-1] == f"error: {100 * expected.error:.2f} %"
    assert f"{split}: {len(expected.label)} images" in shown
    call(evaluate_command, run, "--split", split, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["error"] == expected.error
    assert found["confusion"] == expected.confusion.tolist()
    assert [of_class["name"] for of_class in found["classes"]] == list(NAMES)
    assert sum(of_class["wrong"] for of_class in found["classes"]) == found["wrong"] == expected.wrong


def test_eval_of_an_ensemble(photos: Path, tmp_path: Path, capsys: Output) -> None:
    runs = [make_run(tmp_path / f"run-{seed}", photos, transform_std=0.5, seed=seed) for seed in range(3)]
    call(evaluate_command, *runs, "--crops", 5, "--json")
    found = json.loads(capsys.readouterr().out)
    networks = [load(run) for run in runs]
    test = load_data(Recipe.of(data=str(photos), size=16)).test
    assert found["error"] == evaluate(networks, test, crops=5).error
    expected = [
        {"run": str(run), "error": evaluate([network], test, crops=5).error}
        for run, network in zip(runs, networks, strict=True)
    ]
    assert found["runs"] == expected
    assert (found["crops"], found["split"], found["images"]) == (5, "test", len(test))
    with pytest.raises(DataError, match="expected 1, 5 or 9 crops"):
        call(evaluate_command, *runs, "--crops", 13)
    call(evaluate_command, *runs)
    shown = capsys.readouterr().out
    assert "run-2" in shown
    assert "together" in shown


def test_eval_on_a_folder(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    """All images of a folder without test/, its classes in another order than the network's."""
    network = tiny(names=("cat", "ant", "bee"))
    save(network, tmp_path / "saved")
    call(evaluate_command, tmp_path / "saved", "--data", photos, "--json")
    found = json.loads(capsys.readouterr().out)
    files = [photos / name / f"{number}.png" for name in network.classes for number in range(5)]
    predicted = network.predict(torch.stack([read_image(file, 20, 1) for file in files])).names
    assert found["images"] == 15
    assert found["wrong"] == sum(file.parent.name != name for file, name in zip(files, predicted, strict=True))
    assert [of_class["name"] for of_class in found["classes"]] == ["cat", "ant", "bee"]
    call(evaluate_command, tmp_path / "saved", "--data", photos)
    assert "there is no test/" in " ".join(capsys.readouterr().out.split())


def test_eval_on_a_folder_with_test(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    save(tiny(names=NAMES), tmp_path / "saved")
    shutil.copytree(photos, tmp_path / "parts" / "train")
    shutil.copytree(photos, tmp_path / "parts" / "test")
    (tmp_path / "parts" / "test" / "ant" / "0.png").unlink()
    call(evaluate_command, tmp_path / "saved", "--data", tmp_path / "parts", "--json")
    assert json.loads(capsys.readouterr().out)["images"] == 14


def test_eval_on_a_named_set(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output, monkeypatch: Any) -> None:
    save(tiny(names=NAMES), tmp_path / "saved")
    asked = {}

    def load_set(name: str, **options: Any) -> Any:
        asked.update(options, name=name)
        return dataclasses.replace(load_folder(photos, size=28), name=name)

    monkeypatch.setattr("torchcaps.cli.evaluate.load_set", load_set)
    call(evaluate_command, tmp_path / "saved", "--data", "mnist", "--root", tmp_path, "--json")
    assert json.loads(capsys.readouterr().out)["data"] == "mnist"
    assert asked == {"name": "mnist", "root": tmp_path, "camera": "left"}


def test_what_eval_refuses(tiny: Tiny, run: Path, saved: Path, photos: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_run(other, photos, validation="none")
    refused = {
        (): "expected the folder of a training run",
        (tmp_path / "nowhere",): "there is no .*nowhere",
        (tmp_path,): r"has no model.safetensors: finish .* --resume",
        (saved,): r"saved is not the folder of a training run: it has no run.json",
        (saved, "--data", photos): r"of the classes ant, bee, cat; the network knows ant, \[b\]ee",
        (run, saved): r"run and .*saved differ in their classes, ant, bee, cat and ant, \[b\]ee",
        (run, other, "--split", "validation"): "run and .*other differ in their validation, auto and none",
        (other, "--split", "validation"): "has no validation images in this run",
        (run, "--data", tmp_path / "nothing"): "expected one of mnist, .* or a folder of images",
        (run, "--data", photos, "--root", tmp_path): "--root is for data sets",
    }
    for arguments, message in refused.items():
        with pytest.raises(UserError, match=message):
            call(evaluate_command, *arguments)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no subfolders"):
        call(evaluate_command, run, "--data", tmp_path / "empty")


def test_eval_after_the_images_have_moved(run: Path, photos: Path, tmp_path: Path, capsys: Output) -> None:
    photos.rename(tmp_path / "moved")
    with pytest.raises(DataError, match=rf"were in {photos}, which no longer exists: give the new folder with --data"):
        call(evaluate_command, run)
    call(evaluate_command, run, "--data", tmp_path / "moved", "--json")
    assert json.loads(capsys.readouterr().out)["images"] == 15


def test_many_classes_are_not_a_matrix() -> None:
    classes = tuple(f"class {number}" for number in range(20))
    label = torch.arange(20)
    evaluation = Evaluation(classes=classes, label=label, activation=torch.eye(20).roll(1, 1)[:3].repeat(7, 1)[:20])
    assert confusion_table(Console(width=200), evaluation).row_count == 15


# predict


def test_predict(saved: Path, photos: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    files = sorted(photos.rglob("*.png"))
    expected = load(saved).predict(torch.stack([read_image(file, 20, 1) for file in files]))
    call(predict_command, saved, photos, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["classes"] == ["ant", "[b]ee[/b] :bug:", "cat"]
    assert [of_file["file"] for of_file in found["images"]] == [str(file) for file in files]
    assert [of_file["class"] for of_file in found["images"]] == expected.names
    for of_file, activation in zip(found["images"], expected.activation, strict=True):
        np.testing.assert_allclose(of_file["activations"], activation, rtol=1e-4)
        assert [best["activation"] for best in of_file["best"]] == sorted(of_file["activations"], reverse=True)
        assert of_file["activation"] == max(of_file["activations"])
    assert found["skipped"] == []
    call(predict_command, saved, files[0], photos / "bee", files[0])
    shown = capsys.readouterr().out
    assert len(re.findall(r"\.png ", shown)) == 6
    assert "[b]ee[/b] :bug:" in shown


def test_images_of_any_size_and_mode(saved: Path, tmp_path: Path, capsys: Output) -> None:
    modes = {"a.png": "RGBA", "b.jpg": "CMYK", "c.bmp": "1", "d.webp": "RGB", "e.png": "P", "f.PNG": "I;16"}
    for number, (name, mode) in enumerate(modes.items()):
        Image.new(mode, (5 + 40 * number, 33)).save(tmp_path / name)
    call(predict_command, saved, tmp_path, "--json")
    found = [Path(of_file["file"]).name for of_file in json.loads(capsys.readouterr().out)["images"]]
    assert found == list(modes)


def test_files_that_cannot_be_read(saved: Path, photos: Path, tmp_path: Path, capsys: Output) -> None:
    (photos / "ant" / "broken.png").write_text("no image")
    (photos / "ant" / "notes.txt").write_text("not meant")
    (photos / "ant" / ".hidden.png").write_text("not meant")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as stopped:
        call(predict_command, saved, photos / "ant", tmp_path / "missing.png", tmp_path / "empty", "--json")
    assert stopped.value.code == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert len(found["images"]) == 5
    skipped = {Path(of_file["file"]).name: of_file["reason"] for of_file in found["skipped"]}
    assert set(skipped) == {"broken.png", "missing.png", "empty"}
    assert "the folder has no image" in skipped["empty"]
    for name, reason in skipped.items():
        assert re.search(f"{name}: .*{re.escape(reason)}", shown.err)


def test_no_file_that_can_be_read(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of the images can be used:\n  .*missing.png: No such file"):
        call(predict_command, saved, tmp_path / "missing.png")


def test_what_predict_refuses(tiny: Tiny, saved: Path, photos: Path, tmp_path: Path) -> None:
    save(tiny(in_channels=2), tmp_path / "stereo")
    save(tiny(model="cnn32"), tmp_path / "cnn")
    refused = {
        (saved,): "needs image files or folders",
        (tmp_path / "nowhere", photos): "there is no .*nowhere",
        (saved, photos, "--output", tmp_path): "--output is the folder for the pictures of --explain",
        (saved, photos, "--explain", "--crops", "5"): "leave --crops 5 out",
        (tmp_path / "stereo", photos): "takes images of 2 channels",
        (saved, photos, "--method", "votes"): "--method votes is a method of --explain: give both or neither",
        (tmp_path / "cnn", photos, "--explain", "--method", "votes"): "has no capsules",
    }
    for arguments, message in refused.items():
        with pytest.raises(UserError, match=message):
            call(predict_command, *arguments)


def test_explained_pictures(saved: Path, photos: Path, tmp_path: Path, capsys: Output, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "explained").mkdir()
    (tmp_path / "explained" / "0.png").write_text("mine")
    call(predict_command, saved, photos / "ant" / "0.png", photos / "bee" / "0.png", "--explain", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [of_file["picture"] for of_file in found["images"]] == ["explained/0-2.png", "explained/0-3.png"]
    assert (tmp_path / "explained" / "0.png").read_text() == "mine"
    assert sorted(os.listdir("explained")) == ["0-2.png", "0-3.png", "0.png"]
    for of_file in found["images"]:
        assert of_file["method"] == "integrated-gradients"
        heat = np.array(of_file["heat"])
        assert heat.shape == (16, 16)
        assert heat.min() >= 0
        assert heat.sum() == pytest.approx(1, abs=1e-3)
    with Image.open(found["images"][0]["picture"]) as sheet:
        assert sheet.width > 800  # three panels
        pixels = np.asarray(sheet.convert("RGB"))
    seen = read_image(photos / "ant" / "0.png", 20, 1)[0, 2:18, 2:18].numpy()
    top = 2 * GAP + TITLE_SIZE
    assert np.array_equal(pixels[top + 8 : top + PANEL : 16, GAP + 8 : GAP + PANEL : 16, 0], seen)


def test_pictures_without_reconstruction(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    save(tiny(in_channels=3, names=("日本\n語", "x" * 300, "\N{BUG}")), tmp_path / "saved")
    call(predict_command, tmp_path / "saved", photos / "ant", "--explain", "--output", tmp_path / "a" / "b")
    assert "picture" in capsys.readouterr().out
    assert len(list((tmp_path / "a" / "b").iterdir())) == 5
    with Image.open(tmp_path / "a" / "b" / "4.png") as sheet:
        assert 600 < sheet.width < 650  # two panels and the scale


@pytest.mark.parametrize("method", ["evidence", "grad-cam"])
def test_pictures_of_a_network_without_capsules(
    tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output, method: str
) -> None:
    save(tiny(model="cnn32"), tmp_path / "cnn")
    call(
        predict_command,
        *(tmp_path / "cnn", photos / "ant" / "0.png", "--explain", "--method", method, "--json"),
        *("--output", tmp_path / "out"),
    )
    [found] = json.loads(capsys.readouterr().out)["images"]
    assert found["method"] == method
    assert os.listdir(tmp_path / "out") == ["0.png"]


def test_the_scale_beside_the_heat() -> None:
    heat = torch.zeros(16, 16)
    heat[3, 4], heat[8, 8] = 0.75, 0.25
    sheet = picture(Explanation(torch.zeros(1, 16, 16), 0, 1.0, None, "votes", heat, {}), "one")
    pixels = np.asarray(sheet.convert("RGB")).astype(int)
    top, left = 2 * GAP + TITLE_SIZE, 2 * GAP + PANEL  # of the heat's panel
    bar = pixels[top : top + PANEL, left + PANEL + GAP // 2]  # [PANEL, 3]
    hottest, third, none = (
        pixels[top + 16 * row + 8, left + 16 * column + 8] for row, column in ((3, 4), (8, 8), (0, 0))
    )
    assert np.abs(bar[0] - hottest).max() <= 1
    assert np.abs(bar[-1] - none).max() <= 1
    assert np.abs(bar[round((PANEL - 1) * 2 / 3)] - third).max() <= 2  # a third of the maximum, a third from below


def test_long_names(saved: Path, photos: Path, tmp_path: Path, capsys: Output) -> None:
    long = photos / ("ü" * 120 + ".png")
    shutil.copy(photos / "ant" / "0.png", long)
    call(predict_command, saved, long, long.with_suffix(".png"), "--explain", "--output", tmp_path / "out")
    assert [len(path.stem) for path in (tmp_path / "out").iterdir()] == [50]
    with pytest.raises(DataError, match=r"File name too long"):
        call(predict_command, saved, tmp_path / ("x" * 300 + ".png"))


def test_pictures_that_cannot_be_written(saved: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        call(predict_command, saved, photos, "--explain", "--output", tmp_path / "file")


def test_names_that_a_terminal_cannot_print() -> None:
    assert str(name_text("a\udcffb\x1b[31mc\nd")) == "a?b?[31mc?d"
