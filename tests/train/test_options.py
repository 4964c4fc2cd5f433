"""Early stopping, class weights, clipped gradients; Lightning's own callbacks and loggers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import Logger

from support import tiny_hybrid
from torchcaps.classifier import Evaluation
from torchcaps.errors import UserError
from torchcaps.functional.losses import activation_cross_entropy, margin_loss, spread_loss
from torchcaps.models import create_model
from torchcaps.train import Recipe, train
from torchcaps.train import metrics as metrics_module
from torchcaps.train.class_weights import class_weights
from torchcaps.train.module import TrainingModule
from torchcaps.train.recipe import read_recipe, recipe_from_json
from train.tiny_runs import interrupted, rows_without_times, weights

RUN, CUT = Path("run"), Path("cut")


@pytest.fixture
def small(recipe: Recipe) -> Recipe:
    return recipe.with_fields(reconstruction=0.0)


def with_errors(monkeypatch: pytest.MonkeyPatch, errors: list[float]) -> None:
    """The validation error of each epoch, whatever was trained."""
    original = metrics_module.Metrics.on_train_epoch_end

    def on_train_epoch_end(self: Any, trainer: Any, module: Any) -> None:
        wrong = torch.arange(100) < round(100 * errors[trainer.current_epoch])  # [N]
        activation = torch.stack([~wrong, wrong], 1).float()  # [N, classes]
        label = torch.zeros(100, dtype=torch.int64)
        self.validate = lambda: Evaluation(classes=("a", "b"), label=label, activation=activation)
        original(self, trainer, module)

    monkeypatch.setattr(metrics_module.Metrics, "on_train_epoch_end", on_train_epoch_end)


def epochs_of(folder: Path) -> list[float | None]:
    return [row["epoch"] for row in rows_without_times(folder) if row["validation_error"] is not None]


ERRORS = [0.5, 0.4, 0.45, 0.4, 0.41, 0.1]  # with patience 3 the last one is never seen


def test_patience(small: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_errors(monkeypatch, ERRORS)
    train(small.with_fields(epochs=6, patience=3, weights="best"), output=RUN)
    assert epochs_of(RUN) == [1, 2, 3, 4, 5]
    assert "no lower validation error in 3 epochs: stopped after epoch 5\n" in capsys.readouterr().out
    result = json.loads((RUN / "result.json").read_text())
    assert (result["epochs"], result["steps"], result["best_validation_error"]) == (5, 20, 0.4)


def test_patience_is_in_the_checkpoint(small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with_errors(monkeypatch, ERRORS)
    impatient = small.with_fields(epochs=6, patience=3)
    train(impatient, output=RUN)
    with interrupted(14, "SIGTERM"):
        train(impatient, output=CUT)
    train(impatient, resume=CUT)
    assert rows_without_times(CUT) == rows_without_times(RUN)
    assert weights(CUT) == weights(RUN)
    train(impatient, resume=CUT)  # it had ended: nothing is trained again
    assert rows_without_times(CUT) == rows_without_times(RUN)
    assert weights(CUT) == weights(RUN)


def test_an_extended_run_waits_anew(small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with_errors(monkeypatch, [*ERRORS[:5], 0.5, 0.5])
    impatient = small.with_fields(epochs=6, patience=3)
    train(impatient, output=RUN)
    train(impatient.with_fields(epochs=7), resume=RUN)
    assert epochs_of(RUN) == [1, 2, 3, 4, 5, 6, 7]


def test_fields_that_cannot_be_meant() -> None:
    for changes, words in (
        ({"patience": 2, "validation": "none"}, "patience needs validation data"),
        ({"patience": 2, "average_epochs": 2}, "set one of them to 0"),
        ({"patience": -1}, "patience is -1, expected 0 or more"),
        ({"clip_gradients": -1.0}, "clip_gradients is -1.0, expected 0 or more"),
        ({"class_weights": "equal"}, "class_weights is 'equal', expected none or balanced or numbers, as in"),
        ({"class_weights": (1.0, 0.0)}, r"class_weights is \(1.0, 0.0\), expected a number above 0 per class"),
        ({"class_weights": (1.0, float("nan"))}, "expected a number above 0 per class"),
        ({"class_weights": ()}, "expected a number above 0 per class"),
    ):
        with pytest.raises(UserError, match=words):
            Recipe.of(**changes)


def test_fields_in_files() -> None:
    recipe = Recipe.of(class_weights=(1.0, 2.5), patience=3, clip_gradients=0.5)
    stored = json.loads(json.dumps(recipe.as_json()))
    assert recipe_from_json(stored) == recipe
    for name in ("class_weights", "patience", "clip_gradients"):  # as older versions wrote it
        del stored["optimisation"][name]
    assert recipe_from_json(stored) == Recipe()


@pytest.mark.parametrize("setting", ["balanced", (2.0, 1.0, 7.0)], ids=str)
def test_class_weights(setting: Any) -> None:
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2])
    found = class_weights(setting, labels, ("a", "b", "c"))
    assert found is not None
    assert found[labels].mean() == pytest.approx(1)
    raw = torch.tensor([1 / 5, 1 / 2, 1.0] if setting == "balanced" else setting)
    torch.testing.assert_close(found / found[2], raw / raw[2])
    assert class_weights("none", labels, ("a", "b", "c")) is None
    with pytest.raises(
        UserError, match=r"class_weights has 1 numbers, expected 3: one per class, in the order a, b, c"
    ):
        class_weights((1.0,), labels, ("a", "b", "c"))


@pytest.mark.parametrize("loss", ["spread", "margin", "cross-entropy", "cnn"])
def test_images_count_by_their_class(loss: str) -> None:
    """The loss of a batch is the mean of the losses of its images alone, each times the weight of its class."""
    torch.manual_seed(0)
    network = tiny_hybrid() if loss != "cnn" else create_model("cnn32", num_classes=5, image_size=16)
    recipe = Recipe.of(loss="cross-entropy" if loss == "cnn" else loss, reconstruction=0.0)
    factors = torch.tensor([0.5, 3.0, 1.0, 0.1, 1.0])[: network.num_classes]
    plain, weighted = TrainingModule(network, recipe, 4), TrainingModule(network, recipe, 4, factors)
    output = network(torch.randn(6, network.in_channels, network.image_size, network.image_size))
    label = torch.tensor([0, 1, 1, 2, 0, 1])
    single = [
        plain.output_loss(type(output)(*(value[i : i + 1] for value in output)), label[i : i + 1]) for i in range(6)
    ]
    expected = np.mean([one.item() * factors[k].item() for one, k in zip(single, label, strict=True)])
    assert weighted.output_loss(output, label).item() == pytest.approx(expected, rel=1e-5)
    assert plain.state_dict().keys() == weighted.state_dict().keys()  # checkpoints have no weights of classes


def test_sample_weights_of_another_number() -> None:
    activation, label = torch.rand(3, 2), torch.tensor([0, 1, 0])
    for loss in (lambda **o: spread_loss(activation, label, 0.5, **o), lambda **o: margin_loss(activation, label, **o)):
        with pytest.raises(ValueError, match=r"sample_weight has shape \[2\], expected \[3\]"):
            loss(sample_weight=torch.ones(2))
    ones = torch.ones(3)
    assert activation_cross_entropy(activation, label, sample_weight=ones) == activation_cross_entropy(
        activation, label
    )


def test_weights_of_too_few_classes_are_refused_before_there_is_a_folder(small: Recipe) -> None:
    with pytest.raises(UserError, match="in the order above, left"):
        train(small.with_fields(class_weights=(1.0, 2.0, 3.0)), output=RUN)
    assert not RUN.exists()


class Watch(Callback):
    """Notes the norm of the gradients that the optimiser gets."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        gradients = [p.grad.flatten() for p in pl_module.parameters() if p.grad is not None]
        self.norms.append(torch.cat(gradients).norm().item())


def test_clipped_gradients(small: Recipe) -> None:
    seen: list[float] = []
    original = LightningModule.clip_gradients

    def clip_gradients(self: Any, optimizer: Any, **options: Any) -> None:
        original(self, optimizer, **options)
        gradients = [p.grad.flatten() for p in self.parameters() if p.grad is not None]
        seen.append(torch.cat(gradients).norm().item())

    watch = Watch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LightningModule, "clip_gradients", clip_gradients)
        train(small.with_fields(epochs=1, clip_gradients=1e-3), output=RUN, callbacks=[watch])
    assert min(watch.norms) > 1e-3  # or this test shows nothing
    assert seen == pytest.approx([1e-3] * 4, rel=1e-3)


class Diary(Logger):
    """Of Lightning's interface, what a logger has to have."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.settings: Any = None

    @property
    def name(self) -> str:
        return "diary"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))

    def log_hyperparams(self, params: Any, *arguments: Any, **named: Any) -> None:
        self.settings = params


def test_loggers_get_the_rows_and_the_recipe(small: Recipe) -> None:
    diary = Diary()
    train(small, output=RUN, loggers=[diary])
    rows = rows_without_times(RUN)
    assert [step for step, _ in diary.rows] == [row["step"] for row in rows]
    assert [found["loss"] for _, found in diary.rows] == pytest.approx([row["loss"] for row in rows])
    assert recipe_from_json(diary.settings) == read_recipe(RUN)


def test_lightnings_own_callbacks(small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find the validation error under its name, and their state goes through our checkpoints."""
    with_errors(monkeypatch, ERRORS)
    kept = small.with_fields(epochs=6)

    def own() -> list[Callback]:
        best = ModelCheckpoint(dirpath="own", filename="{epoch}", monitor="validation_error", save_weights_only=True)
        return [EarlyStopping("validation_error", patience=3), best]

    train(kept, output=RUN, callbacks=own())
    assert epochs_of(RUN) == [1, 2, 3, 4, 5]
    assert [path.name for path in Path("own").iterdir()] == ["epoch=1.ckpt"]
    with interrupted(14, "SIGTERM"):
        train(kept, output=CUT, callbacks=own())
    train(kept, resume=CUT, callbacks=own())
    assert rows_without_times(CUT) == rows_without_times(RUN)
