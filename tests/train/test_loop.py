"""What a run does step by step, what it writes, and what it shows."""

import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import mse_loss

from support import tiny_hybrid
from torchcaps.classifier import evaluate, load
from torchcaps.cli.train import report_on
from torchcaps.data import BatchLoader, Pipeline
from torchcaps.errors import UserError
from torchcaps.runs.folder import BusyError, locked
from torchcaps.runs.metrics import read_rows, start_file
from torchcaps.train import Recipe, metrics, train
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.checkpoints import read_checkpoint
from torchcaps.train.finite import NotFiniteError
from torchcaps.train.module import TrainingModule
from torchcaps.train.recipe import read_recipe
from train.tiny_runs import interrupted, rows_without_times, weights

RUN = Path("run")
LAST = RUN / "checkpoints/last.ckpt"
STEPS, EPOCHS = 12, 3
HEADER = (
    "step,epoch,seconds,images_per_second,rate,margin,loss,output_loss,reconstruction_loss,"
    "training_error,validation_error,validation_loss"
)


def margin_at(step: int) -> float:
    """Linear from 0.2 to 0.9 over 0.3 of the epochs, at most 5."""
    return min(0.9, 0.2 + 0.7 * step / (0.3 * STEPS))


def rate_at(step: int) -> float:
    """One cycle from 0.04 up to 1 within 0.3 of the run, then down to 0, by half cosines."""
    top = 0.3 * STEPS
    share = 0.52 - 0.48 * math.cos(math.pi * step / top)
    return 3e-3 * (share if step < top else (1 + math.cos(math.pi * (step - top) / (STEPS - top))) / 2)


def test_steps_are_those_of_plain_pytorch(recipe: Recipe) -> None:
    finished = train(recipe)
    assert finished is not None

    splits = load_data(recipe)
    pipeline = make_pipeline(recipe, splits)
    torch.manual_seed(recipe.optimisation.seed)
    network = make_classifier(recipe, splits, pipeline).network
    optimizer = torch.optim.Adam(network.parameters(), eps=1e-12)
    loader = BatchLoader(splits.train, pipeline, batch_size=8, train=True, seed=recipe.optimisation.seed)
    step, seen = 0, []
    for _ in range(EPOCHS):
        for batch in loader:
            output = network(batch.image)
            rival = output.activation[torch.arange(8), 1 - batch.label]  # of two classes
            target = output.activation[torch.arange(8), batch.label]
            spread = (margin_at(step) - (target - rival)).clamp(min=0).square().mean()
            image = network.reconstruct(output, batch.label)
            rebuilt = 0.0005 * mse_loss(image, batch.target, reduction="sum") / 8
            optimizer.param_groups[0]["lr"] = rate_at(step)
            optimizer.zero_grad()
            (spread + rebuilt).backward()
            optimizer.step()
            step += 1
            seen.append((spread.item(), rebuilt.item(), (target < rival).float().mean().item()))
    assert step == STEPS
    for name, value in finished.classifier.network.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], rtol=0, atol=1e-7, msg=name)

    rows = read_rows(finished.folder / "metrics.csv")
    spans = [(0, 4), (4, 8), (8, 10), (8, 12)]  # the row of an epoch's end is of the whole epoch
    for row, (first, last) in zip(rows, spans, strict=True):
        output_loss, rebuilt_loss, error = torch.tensor(seen[first:last]).mean(0).tolist()
        assert row["output_loss"] == pytest.approx(output_loss, rel=1e-4)
        assert row["reconstruction_loss"] == pytest.approx(rebuilt_loss, rel=1e-4)
        assert row["loss"] == pytest.approx(output_loss + rebuilt_loss, rel=1e-4)
        assert row["training_error"] == pytest.approx(error)


def test_rows(whole: Path) -> None:
    assert (whole / "metrics.csv").read_text().splitlines()[0] == HEADER
    rows = read_rows(whole / "metrics.csv")
    assert [row["step"] for row in rows] == [4, 8, 10, 12]
    assert [row["epoch"] for row in rows] == [1, 2, 2.5, 3]
    for name in ("validation_error", "validation_loss"):
        assert [row[name] is None for row in rows] == [False, False, True, False]
    for row in rows:
        assert row["margin"] == pytest.approx(margin_at(int(row["step"] or 0)), rel=1e-5)
        assert row["rate"] == pytest.approx(rate_at(int(row["step"] or 0)), rel=1e-5, abs=1e-12)
        assert (row["images_per_second"] or 0) > 0
    times = [row["seconds"] or 0.0 for row in rows]
    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"loss": "spread"},
        {"loss": "margin"},
        {"loss": "cross-entropy"},
        {"loss": "cross-entropy", "model": "cnn32", "reconstruction": 0.0},
    ],
)
def test_validation_loss_is_the_recipe_s(recipe: Recipe, fields: dict[str, Any]) -> None:
    """In a row of its own for the weights that the run ends with, from the activations by NumPy."""
    finished = train(recipe.with_fields(**fields, weights="last", epochs=1), output=RUN)
    assert finished is not None
    assert finished.splits.validation is not None
    found = evaluate([finished.classifier], finished.splits.validation)
    [row] = read_rows(RUN / "metrics.csv")
    label = found.label.numpy()
    activation = found.activation.double().numpy()
    target, rival = activation[range(len(label)), label], activation[range(len(label)), 1 - label]
    losses = {
        "spread": np.maximum(0, 0.9 - (target - rival)) ** 2,  # the margin has risen by then
        "margin": np.maximum(0, 0.9 - target) ** 2 + 0.5 * np.maximum(0, rival - 0.1) ** 2,
        "cross-entropy": -np.log(target / (target + rival)),
    }
    assert row["validation_loss"] == pytest.approx(losses[fields["loss"]].mean(), rel=1e-5)


def test_rows_show_the_rising_margin(recipe: Recipe) -> None:
    with interrupted(11, "power cut"):
        train(recipe.with_fields(epochs=20), output=RUN)
    rows = read_rows(RUN / "metrics.csv")
    assert [row["step"] for row in rows] == [4, 8, 10]
    expected = [0.2 + 0.7 * step / (5 * 4) for step in (4, 8, 10)]  # five epochs of four steps
    assert [row["margin"] for row in rows] == pytest.approx(expected, rel=1e-5)


def test_folder(whole: Path) -> None:
    expected = [
        "checkpoints",
        "metrics.csv",
        "model.json",
        "model.safetensors",
        "result.json",
        "run.json",
    ]
    assert sorted(path.name for path in whole.iterdir() if path.name != ".lock") == sorted([*expected, "tensorboard"])
    run = json.loads((whole / "run.json").read_text())
    assert set(run) >= {"recipe", "name", "seed", "versions", "machine", "started", "threads", "processes", "data"}
    assert (run["name"], run["seed"], run["processes"]) == ("tiny", 0, 1)
    assert set(run["versions"]) == {"torchcaps", "torch", "lightning", "python"}
    assert run["data"]["classes"] == ["above", "left"]
    assert [run["data"][split] for split in ("train", "validation", "test")] == [34, 4, 10]
    result = json.loads((whole / "result.json").read_text())
    rows = rows_without_times(whole)
    assert (result["steps"], result["epochs"], result["test_images"], result["weights"]) == (12, 3, 10, "last")
    assert result["validation_error"] == rows[-1]["validation_error"]
    assert result["best_validation_error"] == min(row["validation_error"] for i, row in enumerate(rows) if i != 2)
    assert load(whole).classes == ("above", "left")
    assert all(torch.isfinite(value).all() for value in load(whole).state_dict().values())


def test_tensorboard_has_the_rows(whole: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(whole / "tensorboard")).Reload()
    rows = read_rows(whole / "metrics.csv")
    for name in ("loss", "training_error", "rate"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [row["step"] for row in rows]
        assert [value for _, value in found] == pytest.approx([row[name] for row in rows], rel=1e-4)


def test_tensorboard_after_a_resume(recipe: Recipe) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with interrupted(11, "power cut"):  # behind the row of step 10, which the resumed run writes again
        train(recipe, output=RUN)
    train(recipe, resume=RUN)
    events = accumulator.EventAccumulator(str(RUN / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [4, 8, 10, 12]


def test_one_process_to_a_folder(recipe: Recipe) -> None:
    train(recipe, output=RUN)
    with locked(RUN), pytest.raises(UserError, match=f"another process is training in {RUN}"):
        train(recipe, resume=RUN)
    with locked(RUN), pytest.raises(BusyError):  # which began a moment ago, for all that this one knows
        train(recipe, output=RUN)
    train(recipe, resume=RUN)  # it has left


def test_a_run_is_found_again_from_another_folder(
    recipe: Recipe, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images.parent)
    train(recipe.with_fields(data=images.name, epochs=1), output=tmp_path / "run")
    assert read_recipe(tmp_path / "run").data.data == str(images)


def test_no_decoder_and_no_spread_loss_leave_columns_empty(recipe: Recipe) -> None:
    train(recipe.with_fields(reconstruction=0.0, loss="margin", epochs=1), output=RUN)
    [row] = read_rows(RUN / "metrics.csv")
    assert row["reconstruction_loss"] is row["margin"] is None
    assert row["loss"] == row["output_loss"]


@pytest.mark.parametrize(
    "torn", ["1", "12,3,1", "12,3,1.5,60,0.001,0.9,0.5,0.4,0.1,0.2", "12,3,1.5,60,0,0.9,1,1,1,1,0.2,0.3"]
)
def test_torn_last_line_is_left_out(whole: Path, tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text((whole / "metrics.csv").read_text() + torn)
    rows = read_rows(whole / "metrics.csv")
    assert read_rows(path) == rows
    start_file(path, 10)
    assert path.read_text().count("\n") == 4
    assert read_rows(path) == rows[:3]


def test_torn_line_is_cut_on_resume(recipe: Recipe, whole: Path) -> None:
    with interrupted(10, "power cut"):
        train(recipe, output=RUN)
    with (RUN / "metrics.csv").open("a") as file:
        file.write("11")  # of a step, or of half a step's number
    train(recipe, resume=RUN)
    assert rows_without_times(RUN) == rows_without_times(whole)


def before_step(at: int, change: Callable[[TrainingModule], None], patch: pytest.MonkeyPatch) -> None:
    """Change the module when it has done ``at`` steps."""
    original = TrainingModule.training_step

    def training_step(self: TrainingModule, *arguments: Any) -> Any:
        if self.global_step == at:
            change(self)
        return original(self, *arguments)

    patch.setattr(TrainingModule, "training_step", training_step)


def break_weight(module: TrainingModule) -> None:
    with torch.no_grad():
        dict(module.network.named_parameters())["primary.pose.weight"][0] = math.nan


def break_layer(module: TrainingModule) -> None:
    layer = module.network.get_submodule("primary.pose")
    layer.register_forward_hook(lambda layer, inputs, output: output * math.inf)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_weight, "the weights primary.pose.weight are not finite"),
        (break_layer, "layer primary.pose (Conv2d) is the first whose output is not finite"),
    ],
)
def test_loss_that_is_not_finite(
    recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch, change: Any, words: str
) -> None:
    with monkeypatch.context() as patch:
        before_step(7, change, patch)
        with pytest.raises(NotFiniteError, match=re.escape(words)) as caught:
            train(recipe, output=RUN)
    assert "the output loss is nan at step 8 (epoch 2, batch 4)" in str(caught.value)
    kept = read_checkpoint(LAST)
    assert kept["global_step"] == 6
    assert all(value.isfinite().all() for value in kept["state_dict"].values())
    assert not (RUN / "model.safetensors").exists()
    train(recipe, resume=RUN)
    assert weights(RUN) == weights(whole)


def test_routing_is_blamed_for_what_its_norm_gets(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_routing(module: TrainingModule) -> None:
        layer = module.network.get_submodule("stages.1")
        route = layer.route
        monkeypatch.setattr(layer, "route", lambda *a, **k: tuple(t * math.inf for t in route(*a, **k)))

    with monkeypatch.context() as patch:
        before_step(0, break_routing, patch)
        with pytest.raises(NotFiniteError, match=r"layer stages\.1 \(CapsuleConv2d\) is the first"):
            train(recipe.with_fields(norm="batch"), output=RUN)


def test_rate_that_is_far_too_high(recipe: Recipe) -> None:
    with pytest.raises(NotFiniteError, match=r"at step 2 \(epoch 1, batch 2\): .*lower rate"):
        train(recipe.with_fields(rate=1e30, schedule="constant"), output=RUN)
    assert not LAST.exists()


def test_images_that_are_not_finite(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Pipeline.apply

    def apply(self: Pipeline, *arguments: Any) -> Any:
        batch = original(self, *arguments)
        return batch._replace(image=batch.image * math.nan)

    monkeypatch.setattr(Pipeline, "apply", apply)
    with pytest.raises(NotFiniteError, match=r"step 1 .*the images themselves are not finite"):
        train(recipe, output=RUN)


@pytest.mark.parametrize("at", [6, 12])
def test_weights_that_are_not_finite_reach_no_checkpoint(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    original = metrics.Metrics.on_train_batch_end

    def on_train_batch_end(self: Any, trainer: Any, module: Any, *arguments: Any) -> None:
        original(self, trainer, module, *arguments)
        if trainer.global_step == at:
            break_weight(module)

    monkeypatch.setattr(metrics.Metrics, "on_train_batch_end", on_train_batch_end)
    with pytest.raises(NotFiniteError, match=rf"primary\.pose\.weight are not finite after step {at}"):
        train(recipe, output=RUN)
    for path in (RUN / "checkpoints").iterdir():
        assert all(value.isfinite().all() for value in read_checkpoint(path)["state_dict"].values())
    assert read_checkpoint(LAST)["global_step"] == {6: 4, 12: 9}[at]
    assert not (RUN / "model.safetensors").exists()


def test_quiet_and_plain_without_a_terminal(recipe: Recipe, capfd: pytest.CaptureFixture[str]) -> None:
    train(recipe)
    out, err = capfd.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert "\r" not in out
    lines = out.splitlines()
    assert lines[1] == "run folder: runs/tiny-1"
    assert [line.partition(":")[0] for line in lines[2:5]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    for word in ("loss", "training error", "validation error", "images/s", "s left"):
        assert word in lines[4]
    assert re.fullmatch(r"test error: \d+\.\d\d %", lines[-1])
    assert len(lines) == 6  # data, folder, three epochs, error: nothing of Lightning's


def test_bar_on_a_terminal(recipe: Recipe) -> None:
    screen = io.StringIO()
    train(recipe, console=Console(file=screen, force_terminal=True, width=200, color_system=None), output=RUN)
    *_, bar = [line for line in re.split(r"[\r\n]", screen.getvalue()) if "━" in line]
    last = read_rows(RUN / "metrics.csv")[-1]  # the third epoch
    loss, wrong = (last[name] or 0 for name in ("loss", "training_error"))
    assert "epoch 3/3" in bar
    assert "12/12" in bar
    assert f"loss {loss:.3f}, training error {100 * wrong:.1f} %" in bar
    assert f"validation error {100 * (last['validation_error'] or 0):.1f} %" in bar  # of the last epoch too
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back
    assert re.search(r"test error: \d+\.\d\d %$", screen.getvalue().splitlines()[-1])


def test_report_of_a_run(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    finished = train(recipe.with_fields(epochs=1), output=RUN)
    capsys.readouterr()
    report_on(finished)
    assert capsys.readouterr().out == f"report: {RUN / 'report.html'}\n"
    assert "test error" in (RUN / "report.html").read_text()
    report_on(None)  # of another process than the first


def test_bar_gives_the_cursor_back_when_a_run_fails(recipe: Recipe) -> None:
    screen = io.StringIO()
    with interrupted(2, "power cut"):
        train(recipe, console=Console(file=screen, force_terminal=True), output=RUN)
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1


def test_each_run_has_a_folder_of_its_own(recipe: Recipe) -> None:
    folders = []
    for _ in range(2):
        with interrupted(1, "power cut"):
            train(recipe)
        folders = sorted(path.name for path in Path("runs").iterdir())
    assert folders == ["tiny-1", "tiny-2"]


def test_baseline_network_learns_by_cross_entropy(recipe: Recipe) -> None:
    finished = train(recipe.with_fields(model="cnn32", loss="cross-entropy", reconstruction=0.0, epochs=1), output=RUN)
    assert finished is not None
    [row] = read_rows(RUN / "metrics.csv")
    assert 0 < (row["loss"] or 0) < 2
    assert row["margin"] is row["reconstruction_loss"] is None


def test_capsules_learn_by_cross_entropy(recipe: Recipe) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seen: list[float] = []
        original = TrainingModule.losses

        def losses(self: TrainingModule, output: Any, batch: Any) -> Any:
            found = original(self, output, batch)
            shares = output.activation[torch.arange(8), batch.label] / output.activation.sum(1)
            assert found["output_loss"].item() == pytest.approx(-shares.log().mean().item(), rel=1e-5)
            seen.append(found["output_loss"].item())
            return found

        patch.setattr(TrainingModule, "losses", losses)
        train(recipe.with_fields(loss="cross-entropy", epochs=5), output=RUN)
    assert seen[0] == pytest.approx(math.log(2), rel=0.05)  # chance, of two classes
    assert max(seen[-4:]) < min(seen[:4])


def test_weight_decay_spares_the_bandwidths(recipe: Recipe) -> None:
    recipe = recipe.with_fields(weight_decay=0.3)
    for learn_bandwidth in (False, True):
        network = tiny_hybrid(learn_bandwidth=learn_bandwidth)
        optimizer = TrainingModule(network, recipe, 4).configure_optimizers()["optimizer"]
        decays = {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in network.named_parameters():
            assert decays.pop(parameter) == (0.0 if name.endswith("log_bandwidth") else 0.3), name
        assert not decays
        assert len(optimizer.param_groups) == (3 if learn_bandwidth else 2)
