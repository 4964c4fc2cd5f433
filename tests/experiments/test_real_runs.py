"""Real training, tiny: results, pictures and ensembles of runs on the built-in set."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from experiments.__main__ import main
from experiments.budgets import BUDGETS
from experiments.cells import Experiments
from experiments.record import reconstructions
from experiments.trials import Trial
from torchcaps.classifier import Classifier, load
from torchcaps.data import Split
from torchcaps.errors import UserError
from torchcaps.train.assemble import load_data, make_classifier
from torchcaps.train.checkpoints import Checkpoints

RUNS = ["cifar10-frem", "cifar10-cnn-seed1", "iterations-em", "trial-plain"]


@pytest.fixture(scope="module", autouse=True)
def few_pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A built-in set of few pictures, where no other set is; and one trial."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchcaps.data.catalog.DEFAULT_PAIRS", 60)
        trial = Trial(group="start", name="plain", base="smallnorb-frem-small")
        patch.setattr("experiments.cells.TRIALS", [trial])
        patch.setenv("TORCHCAPS_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setattr("torchcaps.data.locate.cache_folder", lambda: tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where some runs of a rehearsal have left their results."""
    folder = tmp_path_factory.mktemp("rehearsal")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["all", "--budget", "quick", "--only", *RUNS])
    return folder


def test_what_a_rehearsal_leaves(folder: Path) -> None:
    found = sorted(path.name for path in (folder / "experiments/results/quick").iterdir())
    assert found == [
        "cifar10-cnn-seed1.json",
        "cifar10-frem-seed0.json",
        "cifar10-frem-seed0.png",
        "cifar10-frem-seed1.json",
        "cifar10-frem-seed1.png",
        "cifar10-frem.json",
        "iterations-em.json",
        "iterations-em.png",
        "trial-plain.json",
    ]
    values = json.loads((folder / "experiments/results/quick/cifar10-frem-seed1.json").read_text())
    assert (values["seed"], values["test_images"], values["data"]["title"]) == (1, 16, "turntable")
    assert (values["data"]["train"], values["data"]["test"]) == (16, 16)
    assert values["training_error"][-1][0] == 1
    assert values["curves"]["rows"][-1][:2] == [2, 1]


def test_iterations_of_the_test(folder: Path) -> None:
    values = json.loads((folder / "experiments/results/quick/iterations-em.json").read_text())
    [run] = [c.job for c in Experiments(BUDGETS["quick"]).cells("iterations") if c.job.name == "iterations-em"]
    splits = load_data(run.recipe)
    assert values["iterations_error"].keys() == {"1", "2", "3", "5"}
    assert values["iterations_error"]["2"] == values["test_error"]
    trained = load(folder / "runs/experiments/quick/iterations-em")
    other = make_classifier(run.recipe.with_fields(iterations=3), splits, trained.pipeline)
    other.load_state_dict(trained.state_dict())
    wrong = (other.eval().predict(splits.test.images).label != splits.test.labels).double().mean()
    assert values["iterations_error"]["3"] == wrong


def test_ensemble(folder: Path) -> None:
    values = json.loads((folder / "experiments/results/quick/cifar10-frem.json").read_text())
    assert values["seeds"] == [0, 1]
    assert list(values["members"]) == ["cifar10-frem-seed0", "cifar10-frem-seed1"]
    [ensemble] = [c.job for c in Experiments(BUDGETS["quick"]).cells("table3") if c.job.name == "cifar10-frem"]
    networks = [load(folder / "runs/experiments/quick" / name) for name in values["members"]]
    test = load_data(ensemble.recipe).test
    activation = torch.stack([network.activations(network.prepare(test)) for network in networks]).mean(0)
    assert values["test_error"] == (activation.argmax(1) != test.labels).double().mean()


def test_ensemble_without_the_weights_of_its_members(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "experiments/results", tmp_path / "experiments/results")
    Path("experiments/results/quick/cifar10-frem.json").unlink()
    with pytest.raises(UserError, match=r"needs the weights of cifar10-frem-seed0: there is no runs.*remove exp"):
        main(["table3", "--budget", "quick", "--only", "cifar10-frem", "--debug"])


@pytest.mark.parametrize("change", ["recipe", "result"])
def test_ensemble_takes_no_other_weights(folder: Path, tmp_path: Path, change: str) -> None:
    for name in ("experiments", "runs"):
        shutil.copytree(folder / name, tmp_path / name)
    Path("experiments/results/quick/cifar10-frem.json").unlink()
    run = Path("runs/experiments/quick/cifar10-frem-seed1")
    if change == "recipe":
        values = json.loads((run / "run.json").read_text())
        values["recipe"]["optimisation"]["rate"] = 0.5
        (run / "run.json").write_text(json.dumps(values))
        words = r"weights of cifar10-frem-seed1: those in runs.* are of another recipe: rate 0\.5, now .*remove exp"
    else:
        (run / "result.json").unlink()
        words = r"weights of cifar10-frem-seed1: the training in runs.* did not come to its end; remove experiments"
    with pytest.raises(UserError, match=words):
        main(["table3", "--budget", "quick", "--only", "cifar10-frem", "--debug"])


def test_trial(folder: Path) -> None:
    values = json.loads((folder / "experiments/results/quick/trial-plain.json").read_text())
    assert (values["test_error"], values["test_images"]) == (None, 0)
    assert len(values["validation_error"]) == 1
    assert len(values["held_out"]) == 5  # a toy of each class
    assert all(re.fullmatch(r"\D+ \d", toy) and 0 <= error <= 1 for toy, error in values["held_out"].items())
    of_toys = sum(values["held_out"].values()) / 5
    assert of_toys == pytest.approx(values["validation_error"][-1][1], abs=0.2)  # few images, not as many of each toy


def test_picture(folder: Path) -> None:
    with Image.open(folder / "experiments/results/quick/cifar10-frem-seed0.png") as image:
        assert image.size == (5 * 33 - 1, 65)


def test_picture_is_of_the_middle_image_of_each_class(folder: Path) -> None:
    classifier = load(folder / "runs/experiments/quick/cifar10-frem-seed0")
    assert isinstance(classifier, Classifier)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3, 4, 4])  # middles: 1, 4, 5, 6, 8
    pixels = torch.arange(0, 9, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 96, 96) * 20
    grid = reconstructions(classifier, Split(pixels.contiguous(), labels))
    assert grid.shape == (4, 65, 5 * 33 - 1)
    assert grid[0, 0, ::33].tolist() == [20, 80, 100, 120, 160]
    assert grid[3, 32].max() == 0  # transparent between the rows


def test_again_from_the_report_to_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["all", "--budget", "quick", "--only", *RUNS, "--report", "--output", "out"])
        out = capsys.readouterr().out
        assert "[1/" not in out
        assert "cifar10-frem-seed0: done" in out
        text = Path("out/results.md").read_text()
    assert text.startswith("# Rehearsal: these numbers mean nothing\n")
    assert "images/results-quick-cifar10-frem-seed0.png" in text
    assert "ensemble of seeds 0, 1, turntable" in text


def test_interrupted_run_goes_on(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    original = Checkpoints.on_train_batch_end

    def press_ctrl_c(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        original(*arguments)

    monkeypatch.setenv("COLUMNS", "200")
    call = ["table3", "--budget", "quick", "--only", "fashion-mnist-cnn"]
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", press_ctrl_c)
        with pytest.raises(SystemExit) as exit_info:
            main(call)
    assert exit_info.value.code == 130
    out = capsys.readouterr().out
    command = f"python -m experiments {' '.join(call)} --results experiments/results --runs runs"
    assert f"stopped after step 1 by SIGINT; continue with: {command}" in out
    main([*call, "--list"])
    assert "interrupted at epoch" in capsys.readouterr().out
    main(call)
    values = json.loads(Path("experiments/results/quick/fashion-mnist-cnn.json").read_text())
    assert (values["steps"], values["failed"]) == (2, None)
