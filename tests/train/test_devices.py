"""Where a run computes, and with how many bits."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from torchcaps.cli import main
from torchcaps.errors import OptionError
from torchcaps.runs.folder import RunFolderError
from torchcaps.runs.metrics import read_rows
from torchcaps.train import Recipe, train
from torchcaps.train.checkpoints import read_checkpoint
from torchcaps.train.devices import accelerator
from torchcaps.train.loop import Resources
from torchcaps.train.module import TrainingModule
from train.tiny_runs import interrupted, tiny_fields, weights

RUN = Path("run")
BF16 = Resources(precision="bf16")


def recorded(name: str) -> Any:
    return json.loads((RUN / "run.json").read_text())[name]


def test_cpu_is_what_auto_is_here(recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    train(recipe, output=RUN, resources=Resources(device="cpu", precision="32"))
    assert weights(RUN) == weights(whole)
    assert (recorded("device"), recorded("precision"), recorded("processes")) == ("cpu", "32", 1)


def test_auto_prefers_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert (accelerator(), accelerator("cpu"), accelerator("cuda")) == ("cuda", "cpu", "cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "--device cuda: this machine has no CUDA GPU that torch can use: leave it out, or "),
        (["--device", "mps"], "--device mps: this machine has no Apple GPU that torch can use: leave it out, or "),
        (["--device", "cpu", "--precision", "16"], "--precision 16: .* this run is on the CPU: expected 32, or bf16"),
    ],
)
def test_what_the_machine_does_not_have(
    images: Path,
    recipe: Recipe,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("torch.cuda.is_available", "torch.backends.mps.is_available"):
        monkeypatch.setattr(name, lambda: False)
    with pytest.raises(SystemExit):
        main(["train", *tiny_fields(images), *options, "--output", str(RUN)])
    assert not RUN.exists()
    err = capsys.readouterr().err
    assert re.search(message, err), err


def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert Resources(device="cuda").processes == 1
    assert Resources(device="cpu", devices=2).processes == 2
    with pytest.raises(OptionError, match="--devices 2: of cuda this machine has 1, expected at most that many"):
        Resources(devices=2)


def test_values_that_are_none() -> None:
    with pytest.raises(OptionError, match="device is 'tpu', expected one of auto, cpu, cuda, mps"):
        Resources(device="tpu")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="precision is 16, expected one of '32', 'bf16', '16'"):
        Resources(precision=16)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["hybrid32", "poolcaps32", "cnn32"])
def test_bf16_trains_on_the_cpu(recipe: Recipe, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As float32 does but for rounding, with weights that stay float32."""
    seen: list[torch.dtype] = []
    original = TrainingModule.output_loss

    def output_loss(self: Any, output: Any, label: Any) -> Any:
        seen.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return original(self, output, label)

    monkeypatch.setattr(TrainingModule, "output_loss", output_loss)
    fields: dict[str, Any] = {"norm": "batch", "first_channels": 64} if model == "poolcaps32" else {}
    recipe = recipe.with_fields(model=model, epochs=8, schedule="constant", loss="cross-entropy", **fields)
    losses = {}
    for precision in ("32", "bf16"):
        finished = train(recipe, output=Path(precision), resources=Resources(precision=precision))
        assert finished is not None
        losses[precision] = [row["loss"] for row in read_rows(Path(precision, "metrics.csv"))]
        kept = load_file(Path(precision, "model.safetensors"))
        assert all(value.dtype in (torch.float32, torch.int64) for value in kept.values())
        assert finished.evaluation is not None
        assert finished.evaluation.activation.dtype == torch.float32
    assert set(seen) == {torch.float32, torch.bfloat16}
    found, expected = losses["bf16"], losses["32"]
    assert all(loss is not None and math.isfinite(loss) for loss in found)
    assert found[-1] < 0.9 * found[0]  # type: ignore[operator]
    assert found != expected
    assert found[0] == pytest.approx(expected[0], rel=0.05)


def test_a_resumed_run_keeps_its_precision(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path("whole")
    train(recipe, output=whole, resources=BF16)
    with interrupted(6, "SIGTERM"):
        train(recipe, output=RUN, resources=BF16)
    train(recipe, resume=RUN, resources=Resources(device="cpu"))
    assert weights(RUN) == weights(whole)
    assert recorded("precision") == "bf16"


def test_a_resumed_run_may_change_its_precision(recipe: Recipe, whole: Path) -> None:
    with interrupted(6, "SIGTERM"):
        train(recipe, output=RUN, resources=BF16)
    assert read_checkpoint(RUN / "checkpoints/last.ckpt")["global_step"] == 6
    main(["train", "--resume", str(RUN), "--precision", "32", "--device", "cpu"])
    assert recorded("precision") == "32"
    assert weights(RUN) != weights(whole)
    about = json.loads((RUN / "run.json").read_text())
    (RUN / "run.json").write_text(json.dumps({**about, "precision": "64"}))
    with pytest.raises(RunFolderError, match=r"run\.json says precision is '64', expected 32, bf16, 16"):
        train(recipe, resume=RUN)
