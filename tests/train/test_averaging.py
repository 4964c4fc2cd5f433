"""The mean of the weights over the last epochs, batch norm's statistics for it, and interruptions."""

import copy
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchcaps.classifier import evaluate
from torchcaps.cli.train import report_on
from torchcaps.data import BatchLoader
from torchcaps.errors import UserError
from torchcaps.nn.norm import Convolution
from torchcaps.train import Recipe, averaging, train
from torchcaps.train.assemble import load_data
from torchcaps.train.checkpoints import read_checkpoint
from train.tiny_runs import interrupted, rows_without_times, weights

RUN, CUT = Path("run"), Path("cut")


@pytest.fixture
def averaged(recipe: Recipe) -> Recipe:
    """The last two of three epochs, of four steps each."""
    return recipe.with_fields(average_epochs=2, reconstruction=0.0)


@pytest.fixture
def normalised(averaged: Recipe) -> Recipe:
    """With batch norm after each convolution but the last."""
    return averaged.with_fields(model="cnn32", norm="batch", loss="cross-entropy")


def test_mean_is_that_of_the_last_steps(averaged: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Tensor]] = []
    original = averaging.MeanOfWeights.on_train_batch_end

    def on_train_batch_end(self: Any, trainer: Any, module: Any, *arguments: Any) -> None:
        seen.append({name: weight.detach().double() for name, weight in module.network.named_parameters()})
        original(self, trainer, module, *arguments)

    monkeypatch.setattr(averaging.MeanOfWeights, "on_train_batch_end", on_train_batch_end)
    finished = train(averaged, output=RUN)
    assert finished is not None
    assert len(seen) == 12
    for name, weight in finished.classifier.network.named_parameters():
        expected = torch.stack([step[name] for step in seen[4:]]).mean(0)
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-7, msg=name)
    assert not torch.equal(expected, seen[-1][name])
    assert json.loads((RUN / "result.json").read_text())["weights"] == "mean"
    report_on(finished)
    assert "mean of the weights over the last epochs" in (RUN / "report.html").read_text()


def test_last_validation_and_checkpoint_are_of_the_mean(averaged: Recipe) -> None:
    finished = train(averaged, output=RUN)
    assert finished is not None
    validation = load_data(averaged).validation
    assert validation is not None
    assert rows_without_times(RUN)[-1]["validation_error"] == evaluate([finished.classifier], validation).error
    kept = read_checkpoint(RUN / "checkpoints/last.ckpt")["state_dict"]
    for name, value in finished.classifier.network.state_dict().items():
        assert torch.equal(kept[f"network.{name}"], value)


def test_what_is_before_the_last_step_is_as_without(averaged: Recipe, whole: Path) -> None:
    train(averaged.with_fields(reconstruction=0.0005), output=RUN)
    rows, plain = rows_without_times(RUN), rows_without_times(whole)
    assert rows[:-1] == plain[:-1]
    assert weights(RUN) != weights(whole)


@pytest.mark.parametrize("most", [2, 200])  # batches, of the four that an epoch has
def test_statistics_are_taken_anew(normalised: Recipe, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(averaging, "STATISTICS_BATCHES", most)
    finished = train(normalised.with_fields(mixup=0.3), output=RUN)
    assert finished is not None
    network, pipeline = copy.deepcopy(finished.classifier.network), finished.classifier.pipeline
    first = network.get_submodule("layers.0")
    assert isinstance(first, Convolution)
    loader = BatchLoader(load_data(normalised).train, pipeline, batch_size=8, train=True)
    loader.set_epoch(3)  # the epochs before were trained on
    seen = [first.conv(batch.image).detach() for batch in islice(loader, most)]  # [8, 16, 16, 16] each
    norm = first.norm
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0))
    assert norm.num_batches_tracked is not None
    assert int(norm.num_batches_tracked) == min(4, most)
    assert norm.momentum == 0.1


@pytest.mark.parametrize("how", ["SIGTERM", "power cut"])
@pytest.mark.parametrize("at", [3, 7, 11, 12])
def test_interrupted_run_ends_with_the_same_mean(normalised: Recipe, how: str, at: int) -> None:
    train(normalised, output=RUN)
    with interrupted(at, how):
        train(normalised, output=CUT)
    train(normalised, resume=CUT)
    assert weights(CUT) == weights(RUN)
    assert rows_without_times(CUT) == rows_without_times(RUN)
    (CUT / "model.safetensors").unlink()
    train(normalised, resume=CUT)  # of a finished run
    assert weights(CUT) == weights(RUN)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"average_epochs": -1}, "average_epochs is -1, expected 0 to 50"),
        ({"average_epochs": 4, "epochs": 3}, "average_epochs is 4, expected 0 to 3, the run's epochs"),
        ({"average_epochs": 2, "weights": "best"}, "average_epochs is 2 and weights is 'best'.*set weights='last'"),
    ],
)
def test_what_cannot_be_meant(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Recipe.of(**changes)
