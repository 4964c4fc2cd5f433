"""Runs on mixed images: their loss, what is not counted, and what an interruption leaves."""

from pathlib import Path
from typing import Any

import pytest
import torch

from torchcaps.cli.train import report_on
from torchcaps.data import BatchLoader, MixedBatch
from torchcaps.data.mixing import Mixing
from torchcaps.errors import UserError
from torchcaps.train import Recipe, train
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from train.tiny_runs import interrupted, rows_without_times, weights

RUN, CUT = Path("run"), Path("cut")


@pytest.fixture
def mixed(recipe: Recipe) -> Recipe:
    return recipe.with_fields(mixup=0.5, reconstruction=0.0, loss="margin", schedule="constant", epochs=2)


def test_steps_are_those_of_plain_pytorch(mixed: Recipe) -> None:
    finished = train(mixed, output=RUN)
    assert finished is not None

    splits = load_data(mixed)
    pipeline = make_pipeline(mixed, splits)
    torch.manual_seed(mixed.optimisation.seed)
    network = make_classifier(mixed, splits, pipeline).network
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, eps=1e-12)
    loader = BatchLoader(splits.train, pipeline, batch_size=8, train=True, mixing=Mixing(mixup=0.5))

    def margin_loss(activation: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        target, rival = activation[torch.arange(8), label], activation[torch.arange(8), 1 - label]  # of two classes
        return ((0.9 - target).clamp(min=0) ** 2 + 0.5 * (rival - 0.1).clamp(min=0) ** 2).mean()

    losses = []
    for batch in (batch for _ in range(2) for batch in loader):
        assert isinstance(batch, MixedBatch)
        activation = network(batch.image).activation
        first, second = margin_loss(activation, batch.label), margin_loss(activation, batch.other_label)
        loss = batch.share * first + (1 - batch.share) * second
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for name, value in finished.classifier.network.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], rtol=0, atol=1e-7, msg=name)
    rows = rows_without_times(RUN)
    assert [row["loss"] for row in rows] == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4], rel=1e-4)


def test_there_is_no_training_error(mixed: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    finished = train(mixed, output=RUN)
    assert all(row["training_error"] is row["reconstruction_loss"] is None for row in rows_without_times(RUN))
    shown = capsys.readouterr().out
    assert "validation error" in shown
    assert "training error" not in shown
    report_on(finished)
    assert (RUN / "report.html").is_file()


def test_interrupted_run_ends_as_one_that_was_not(mixed: Recipe) -> None:
    train(mixed, output=RUN)
    with interrupted(6, "SIGTERM"):
        train(mixed, output=CUT)
    train(mixed, resume=CUT)
    assert weights(CUT) == weights(RUN)
    assert rows_without_times(CUT) == rows_without_times(RUN)


def test_a_run_that_is_mixed_at_first_only(mixed: Recipe) -> None:
    assert mixed.with_fields(epochs=15, unmixed=0.33).mixing.epochs == 10
    train(mixed.with_fields(unmixed=0.5), output=RUN)
    with interrupted(6, "SIGTERM"):  # in the second epoch of two
        train(mixed.with_fields(unmixed=0.5), output=CUT)
    train(mixed.with_fields(unmixed=0.5), resume=CUT)
    assert weights(CUT) == weights(RUN)
    train(mixed, output=Path("mixed"))
    assert weights(Path("mixed")) != weights(RUN)
    assert [row["loss"] for row in rows_without_times(CUT)] == [row["loss"] for row in rows_without_times(RUN)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mixup": -0.1}, "mixup is -0.1, expected 0 or more"),
        ({"mixup": float("inf")}, "mixup is inf"),
        ({"mixup": 0.2}, "mixed images are not reconstructed.*set reconstruction=0"),
        ({"cutmix": 0.5}, "mixed images are not reconstructed.*set reconstruction=0"),
        ({"cutmix": -0.1}, "cutmix is -0.1, expected 0 or more"),
        ({"cutmix": 1.1}, "cutmix is 1.1, expected at most 1"),
        ({"unmixed": 1.1}, "unmixed is 1.1, expected at most 1"),
    ],
)
def test_what_cannot_be_meant(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Recipe.of(**changes)
    assert Recipe.of(mixup=0.2, model="cnn32").images.mixup == 0.2  # has no decoder anyway
