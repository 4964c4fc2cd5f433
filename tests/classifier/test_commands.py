"""``torchcaps eval`` and ``torchcaps predict``."""

import csv
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
from PIL import Image
from rich.console import Console

from run_folders import call, make_run
from torchcaps.classifier import Classifier, Evaluation, Explanation, evaluate, load, save
from torchcaps.classifier.metrics import calibration_error, figures_of_classes
from torchcaps.classifier.picture import GAP, PANEL, TITLE_SIZE, picture
from torchcaps.cli.evaluate import evaluate_command
from torchcaps.cli.per_image import write_csv
from torchcaps.cli.predict import predict_command
from torchcaps.cli.tables import class_table, confusion_table, name_text, natural_width
from torchcaps.data import DataError, load_folder
from torchcaps.data.decode import read_image
from torchcaps.errors import OptionError, UserError
from torchcaps.train.assemble import load_data
from torchcaps.train.recipe import Recipe

Tiny = Callable[..., Classifier]
Output = pytest.CaptureFixture[str]
NAMES = ("ant", "bee", "cat")


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
    low, high = (100 * end for end in expected.interval)
    assert shown.splitlines()[-1] == (f"error: {100 * expected.error:.2f} % (95 % interval: {low:.2f} to {high:.2f} %)")
    assert f"calibration error (15 bins): {100 * calibration_error(expected):.2f} %" in shown
    assert "top-5" not in shown
    assert f"{split}: {len(expected.label)} images" in shown
    call(evaluate_command, run, "--split", split, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["error"], tuple(found["interval"])) == (expected.error, expected.interval)
    assert (found["calibration_error"], found["top_5_error"]) == (calibration_error(expected), None)
    for entry, of_class in zip(found["classes"], figures_of_classes(expected), strict=True):
        assert {name: entry[name] for name in of_class._fields} == of_class._asdict()
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
    for run, network, entry in zip(runs, networks, found["runs"], strict=True):
        alone = evaluate([network], test, crops=5)
        assert entry == {"run": str(run), "error": alone.error, "interval": list(alone.interval)}
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


def test_eval_skips_files_if_asked(tiny: Tiny, run: Path, photos: Path, tmp_path: Path, capsys: Output) -> None:
    save(tiny(names=NAMES), tmp_path / "saved")
    (photos / "ant/0.png").write_bytes(b"no image")
    for arguments in ((tmp_path / "saved", "--data", photos), (run,)):
        with pytest.raises(DataError, match="on the command line --skip-bad"):
            call(evaluate_command, *arguments)
        call(evaluate_command, *arguments, "--skip-bad")
        assert "1 of 15 files skipped as unusable" in " ".join(capsys.readouterr().out.split())


def test_eval_on_a_named_set(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output, monkeypatch: Any) -> None:
    save(tiny(names=NAMES), tmp_path / "saved")
    asked = {}

    def load_set(name: str, **options: Any) -> Any:
        asked.update(options, name=name)
        return dataclasses.replace(load_folder(photos, size=28), name=name)

    monkeypatch.setattr("torchcaps.cli.held_out.load_set", load_set)
    call(evaluate_command, tmp_path / "saved", "--data", "mnist", "--root", tmp_path, "--json")
    assert json.loads(capsys.readouterr().out)["data"] == "mnist"
    assert asked == {"name": "mnist", "root": tmp_path, "camera": "left"}


def test_what_eval_refuses(tiny: Tiny, run: Path, saved: Path, photos: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_run(other, photos, validation="none")
    refused = {
        (): "expected the folder of a training run",
        (tmp_path / "nowhere",): "there is no .*nowhere",
        (tmp_path,): r"has no model.safetensors: expected the folder of a finished training run",
        (saved,): "saved is a network without a run, .*: add --data",
        (saved, "--data", photos): r"of the classes ant, bee, cat; the network knows ant, \[b\]ee",
        (run, saved): r"run and .*saved differ in their classes, ant, bee, cat and ant, \[b\]ee",
        (run, other, "--split", "validation"): "run and .*other differ in their validation, auto and none",
        (other, "--split", "validation"): "has no validation images in this run",
        (run, "--data", tmp_path / "nothing"): "expected one of mnist, .* or a folder of images",
        (run, "--data", photos, "--root", tmp_path): "--root is for data sets",
        (run, "--data", "mnist", "--skip-bad"): "--skip-bad is for folders of images, not for mnist",
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


def one_prediction_each(count: int) -> Evaluation:
    """So many classes with one image each, mistaken for the next class."""
    names = tuple(f"class {number:02}" for number in range(count))
    return Evaluation(classes=names, label=torch.arange(count), activation=torch.eye(count).roll(1, 1))


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("count", [3, 10, 21, 100])
def test_tables_fit_a_terminal(count: int, width: int) -> None:
    """Nothing is cut or wrapped; more than 20 classes have no matrix."""
    console = Console(width=width)
    by_class = class_table(console, one_prediction_each(count))
    confusions = confusion_table(console, one_prediction_each(count))
    assert natural_width(by_class) <= width
    assert natural_width(confusions) <= width
    assert by_class.row_count == count
    assert {"precision", "recall", "F1"} < {str(column.header) for column in by_class.columns}
    assert confusions.title == ("Most common confusions" if count > 20 else "Confusion matrix")


def test_a_matrix_has_at_most_20_classes() -> None:
    assert confusion_table(Console(width=200), one_prediction_each(20)).row_count == 20
    assert confusion_table(Console(width=200), one_prediction_each(21)).row_count == 15


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def test_eval_writes_a_row_per_image(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    names = ('c,"a"\nt', "ant", "bee")
    (photos / "cat").rename(photos / names[0])
    (photos / "ant" / "0.png").rename(photos / "ant" / 'a "b", c.png')
    network = tiny(names=names)
    save(network, tmp_path / "saved")
    table = tmp_path / "new" / "table.csv"
    call(evaluate_command, tmp_path / "saved", "--data", photos, "--csv", table)
    assert "results of each image: " in capsys.readouterr().out
    rows = read_csv(table)
    assert {row["file"] for row in rows} == {str(path) for path in photos.rglob("*.png")}
    assert list(rows[0]) == ["file", "true_class", "predicted_class", "activation", *(f"activation_{n}" for n in names)]
    for row in rows:
        said = network.predict(read_image(Path(row["file"]), 20, 1)[None])
        assert row["true_class"] == Path(row["file"]).parent.name
        assert row["predicted_class"] == said.names[0]
        assert float(row["activation"]) == pytest.approx(float(said.activation.max()), rel=1e-5)
        found = [float(row[f"activation_{name}"]) for name in names]
        assert found == pytest.approx(said.activation[0].tolist(), rel=1e-5)
    assert [path.name for path in table.parent.iterdir()] == ["table.csv"]


def test_eval_of_more_than_five_classes(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    names = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")
    for name in names[3:]:
        shutil.copytree(photos / "ant", photos / name)
    save(tiny(names=names), tmp_path / "saved")
    call(evaluate_command, tmp_path / "saved", "--data", photos, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 35
    assert 0 < found["top_5_error"] < found["error"]
    call(evaluate_command, tmp_path / "saved", "--data", photos)
    assert f"top-5 error: {100 * found['top_5_error']:.2f} %" in capsys.readouterr().out


def test_a_row_of_an_image_without_a_file(tmp_path: Path) -> None:
    activation = torch.tensor([[0.1, 1 / 3], [0.5, 0.0]])
    write_csv(tmp_path / "t.csv", ("a", "b"), activation, label=torch.tensor([0, 0]))
    assert (tmp_path / "t.csv").read_bytes() == (
        b"index,true_class,predicted_class,activation,activation_a,activation_b\r\n"
        b"0,a,b,0.333333343,0.100000001,0.333333343\r\n1,a,a,0.5,0.5,0\r\n"
    )


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


def test_predict_writes_a_row_per_file(saved: Path, photos: Path, tmp_path: Path, capsys: Output) -> None:
    shutil.copy(photos / "ant" / "0.png", os.fsencode(photos / "ant") + b"/caf\xe9.png")  # a name that is not UTF-8
    with pytest.raises(OptionError, match="is a folder: expected the name of a file"):
        call(predict_command, saved, photos / "ant", "--csv", tmp_path)
    call(predict_command, saved, photos / "ant", "--csv", tmp_path / "table.csv", "--json")
    found, rows = json.loads(capsys.readouterr().out), read_csv(tmp_path / "table.csv")
    assert [row["file"] for row in rows] == [of_file["file"] for of_file in found["images"]]
    assert [row["predicted_class"] for row in rows] == [of_file["class"] for of_file in found["images"]]
    assert "true_class" not in rows[0]
    for row, of_file in zip(rows, found["images"], strict=True):
        values = [float(row[f"activation_{name}"]) for name in found["classes"]]
        assert values == pytest.approx(of_file["activations"], rel=1e-8)
    call(predict_command, saved, photos / "ant", "--csv", tmp_path / "table.csv")
    assert "results of each image: " in capsys.readouterr().out


def test_predict_takes_stereo_pairs(tiny: Tiny, photos: Path, tmp_path: Path, capsys: Output) -> None:
    network = tiny(in_channels=2)
    save(network, tmp_path / "stereo")
    left, right = tmp_path / "left, or so", tmp_path / "right"  # a comma in a name does no harm
    shutil.copytree(photos / "ant", left)
    shutil.copytree(photos / "bee", right)
    call(predict_command, tmp_path / "stereo", f"{left}/1.png,{right}/2.png", f"{left},{right}", "--json")
    found = json.loads(capsys.readouterr().out)["images"]
    pairs = [(1, 2), *((k, k) for k in range(5))]
    assert [of_pair["file"] for of_pair in found] == [f"{left}/{a}.png,{right}/{b}.png" for a, b in pairs]
    for of_pair, (a, b) in zip(found, pairs, strict=True):
        sides = [read_image(folder / f"{k}.png", 20, 1) for folder, k in ((left, a), (right, b))]
        expected = network.predict(torch.cat(sides)[None]).activation[0]
        np.testing.assert_allclose(of_pair["activations"], expected, rtol=1e-4)

    call(predict_command, tmp_path / "stereo", f"{right}/1.png,{right}/1.png", "--json")  # one picture twice
    assert len(json.loads(capsys.readouterr().out)["images"]) == 1
    (left / "3.png").unlink()
    with pytest.raises(SystemExit):
        call(predict_command, tmp_path / "stereo", f"{left},{right}", photos / "ant" / "0.png", "--explain",
             "--output", tmp_path / "pictures", "--json")  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert [Path(of_pair["picture"]).name for of_pair in said["images"]] == ["0.png", "1.png", "2.png", "4.png"]
    reasons = {Path(file["file"]).name: file["reason"] for file in said["skipped"]}
    assert reasons.keys() == {"3.png", "0.png"}
    assert "the other folder has no image of that name" in reasons["3.png"]
    assert "expected LEFT,RIGHT" in reasons["0.png"]


def test_images_of_any_size_and_mode(saved: Path, tmp_path: Path, capsys: Output) -> None:
    modes = {"a.png": "RGBA", "b.jpg": "CMYK", "c.bmp": "1", "d.webp": "RGB", "e.png": "P", "f.PNG": "I;16"}
    modes |= {"g.tif": "I;16", "h.TIFF": "CMYK", "i.gif": "P"}
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
    save(tiny(in_channels=4), tmp_path / "four")
    save(tiny(model="cnn32"), tmp_path / "cnn")
    refused = {
        (saved,): "needs image files or folders",
        (tmp_path / "nowhere", photos): "there is no .*nowhere",
        (saved, photos, "--output", tmp_path): "--output is the folder for the pictures of --explain",
        (saved, photos, "--explain", "--crops", "5"): "leave --crops 5 out",
        (tmp_path / "four", photos): "takes images of 4 channels, which no file has",
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
