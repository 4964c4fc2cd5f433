"""Finished runs that get more epochs."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from torchcaps.cli import main
from torchcaps.errors import OptionError
from torchcaps.runs.folder import RunFolderError
from torchcaps.runs.metrics import read_rows
from torchcaps.train import Recipe, averaging, train
from torchcaps.train.checkpoints import read_checkpoint
from torchcaps.train.recipe import read_recipe
from train.tiny_runs import interrupted, rows_without_times, weights

RUN, CUT = Path("run"), Path("cut")
STEPS = 4  # per epoch


def about(folder: Path, file: str = "run.json") -> Any:
    return json.loads((folder / file).read_text())


@pytest.fixture
def finished(recipe: Recipe, whole: Path) -> Path:
    """A finished run of three epochs."""
    shutil.copytree(whole, RUN)
    return RUN


def test_an_extended_run_goes_on(finished: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--resume", str(finished), "--epochs", "5"])
    assert "report:" in capsys.readouterr().out
    rows = rows_without_times(finished)
    former = rows_without_times(whole)
    assert rows[: len(former)] == former
    assert [row["step"] for row in rows[len(former) :]] == [16, 20]
    assert weights(finished) != weights(whole)
    assert read_recipe(finished).optimisation.epochs == 5
    assert about(finished)["former_epochs"] == [3]
    result = about(finished, "result.json")
    assert (result["epochs"], result["steps"]) == (5, 20)
    assert result["seconds"] > about(whole, "result.json")["seconds"]


def test_the_rate_makes_a_new_cycle_and_the_margin_stays(recipe: Recipe, finished: Path) -> None:
    rates, margins = [], []
    original = averaging.TrainingModule.training_step

    def training_step(self: Any, *arguments: Any) -> Any:
        rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        margins.append(self.margin)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaging.TrainingModule, "training_step", training_step)
        train(recipe.with_fields(epochs=13), resume=finished)
    steps, top = 10 * STEPS, 12  # of the new cycle
    up = [0.52 - 0.48 * math.cos(math.pi * step / top) for step in range(top)]
    down = [(1 + math.cos(math.pi * (step - top) / (steps - top))) / 2 for step in range(top, steps)]
    assert rates == pytest.approx([3e-3 * share for share in (*up, *down)])
    assert margins == pytest.approx([0.9] * steps)  # a run of 13 epochs would reach it in the fourth only


def test_a_constant_rate_goes_on_as_if_the_run_had_been_longer(recipe: Recipe) -> None:
    recipe = recipe.with_fields(schedule="constant", loss="cross-entropy")
    train(recipe, output=RUN)
    train(recipe.with_fields(epochs=5), output=CUT)
    train(recipe.with_fields(epochs=5), resume=RUN)
    assert weights(RUN) == weights(CUT)
    assert rows_without_times(RUN) == rows_without_times(CUT)


@pytest.mark.parametrize(("at", "how"), [(13, "power cut"), (14, "SIGTERM"), (16, "SIGTERM")])
def test_an_interrupted_extension_resumes(recipe: Recipe, finished: Path, at: int, how: str) -> None:
    shutil.copytree(finished, CUT)
    train(recipe.with_fields(epochs=5), resume=RUN)
    with interrupted(at, how):
        train(recipe.with_fields(epochs=5), resume=CUT)
    assert not (CUT / "result.json").exists()  # it is not finished
    assert (CUT / "model.safetensors").exists()  # but what it was can still be used
    with pytest.raises(OptionError, match=r"--epochs 7: cut is not finished, it is at epoch [34] of 5: resume it"):
        train(recipe.with_fields(epochs=7), resume=CUT)
    train(read_recipe(CUT), resume=CUT)
    assert weights(CUT) == weights(RUN)
    assert rows_without_times(CUT) == rows_without_times(RUN)
    assert about(CUT)["former_epochs"] == [3]


def test_extended_twice(recipe: Recipe, finished: Path) -> None:
    for epochs in (4, 6):
        train(recipe.with_fields(epochs=epochs), resume=finished)
    assert about(finished)["former_epochs"] == [3, 4]
    validated = [row["epoch"] for row in read_rows(finished / "metrics.csv") if row["validation_error"] is not None]
    assert validated == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("epochs", ["2", "3"])
def test_not_more_epochs_than_it_has(finished: Path, whole: Path, epochs: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--resume", str(finished), "--epochs", epochs])
    assert f"--epochs {epochs}: run already has 3 epochs, expected more than that" in capsys.readouterr().err
    assert (finished / "result.json").read_bytes() == (whole / "result.json").read_bytes()


def test_without_a_checkpoint(recipe: Recipe, finished: Path) -> None:
    (finished / "checkpoints/last.ckpt").unlink()
    with pytest.raises(
        RunFolderError, match=r"run has no checkpoints/last\.ckpt, from which it would go on: start a new"
    ):
        train(recipe.with_fields(epochs=5), resume=finished)
    assert (finished / "result.json").exists()


def test_a_damaged_checkpoint_leaves_a_finished_run_as_it_is(recipe: Recipe, finished: Path) -> None:
    checkpoint = finished / "checkpoints/last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(RunFolderError, match=r"last\.ckpt is damaged"):
        train(recipe.with_fields(epochs=5), resume=finished)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_of_an_option_given_twice_the_last_one_counts(finished: Path, whole: Path) -> None:
    shutil.copytree(finished, "other")
    run = json.loads(Path("other/run.json").read_text())
    run["recipe"]["optimisation"]["rate"] = 0.5
    Path("other/run.json").write_text(json.dumps(run))
    main(["train", "--resume", "other", "--resume", str(finished), "--epochs", "4"])
    assert read_recipe(finished).optimisation.epochs == 4
    assert read_recipe(finished).with_fields(epochs=3) == read_recipe(whole)
    assert about(Path("other")) == run


def test_the_mean_is_over_the_added_epochs(recipe: Recipe) -> None:
    """What the first run averaged is no part of it, though its checkpoint holds it."""
    recipe = recipe.with_fields(average_epochs=2)
    train(recipe, output=RUN)
    assert read_checkpoint(RUN / "checkpoints/last.ckpt")["callbacks"]["MeanOfWeights"]["steps"] == 2 * STEPS
    seen: list[dict[str, torch.Tensor]] = []
    original = averaging.MeanOfWeights.on_train_batch_end

    def on_train_batch_end(self: Any, trainer: Any, module: Any, *arguments: Any) -> None:
        seen.append({name: weight.detach().double() for name, weight in module.network.named_parameters()})
        original(self, trainer, module, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averaging.MeanOfWeights, "on_train_batch_end", on_train_batch_end)
        train(recipe.with_fields(epochs=4), resume=RUN)
    assert len(seen) == STEPS
    found = load_file(RUN / "model.safetensors")
    for name in seen[0]:
        expected = torch.stack([step[name] for step in seen]).mean(0)
        torch.testing.assert_close(found[name].double(), expected, rtol=1e-5, atol=1e-7, msg=name)
