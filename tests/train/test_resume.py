"""A run that was interrupted ends as one that was not: bit for bit."""

import errno
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from torchcaps.data.writing import PART
from torchcaps.errors import UserError
from torchcaps.train import Recipe, train
from torchcaps.train.checkpoints import read_checkpoint
from train.tiny_runs import interrupted, rows_without_times, weights

CUT = Path("cut")
LAST, BEST = CUT / "checkpoints/last.ckpt", CUT / "checkpoints/best.ckpt"


def check_same(whole: Path) -> None:
    assert weights(CUT) == weights(whole)
    assert rows_without_times(CUT) == rows_without_times(whole)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "power cut"])
@pytest.mark.parametrize("at", [1, 4, 6, 12])  # before any checkpoint, at an epoch's end, within one, at the end
def test_interrupted_run_ends_with_the_same_weights_and_rows(recipe: Recipe, whole: Path, how: str, at: int) -> None:
    with interrupted(at, how):
        train(recipe, output=CUT)
    assert not (CUT / "model.safetensors").exists()
    train(recipe, resume=CUT)
    check_same(whole)


def test_a_run_of_an_older_version_is_resumed(recipe: Recipe, whole: Path) -> None:
    """Its file lacks a column, and its row of an epoch's end covers the steps since the row before."""
    with interrupted(6, "SIGTERM"):
        train(recipe, output=CUT)
    path = CUT / "metrics.csv"
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in path.read_text().splitlines()))
    train(recipe, resume=CUT)
    rows, expected = rows_without_times(CUT), rows_without_times(whole)
    assert rows[0].pop("validation_loss") is None
    expected[0].pop("validation_loss")
    assert rows == expected


def test_interrupted_twice(recipe: Recipe, whole: Path) -> None:
    with interrupted(5, "power cut"):
        train(recipe, output=CUT)
    with interrupted(7, "SIGTERM"):
        train(recipe, resume=CUT)
    assert read_checkpoint(LAST)["global_step"] == 7
    train(recipe, resume=CUT)
    check_same(whole)


def test_signal_leaves_a_checkpoint_of_its_step(recipe: Recipe) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupted(2, "SIGINT"):
        train(recipe, output=CUT)
    assert read_checkpoint(LAST)["global_step"] == 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_resume_of_a_finished_run_writes_its_files_again(recipe: Recipe, whole: Path) -> None:
    shutil.copytree(whole, CUT)
    for name in ("model.safetensors", "model.json", "result.json"):
        (CUT / name).unlink()
    train(recipe, resume=CUT)
    check_same(whole)
    assert (CUT / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, CUT)]
    for name in ("seconds", "images_per_second"):
        first, again = (result.pop(name) for result in results)
        assert again == pytest.approx(first, rel=0.5)
    assert results[0] == results[1]


def test_resume_without_a_checkpoint_starts_from_the_beginning(
    recipe: Recipe, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with interrupted(1, "power cut"):
        train(recipe, output=CUT)
    assert not LAST.exists()
    train(recipe, resume=CUT)
    assert "starting from the beginning" in capsys.readouterr().out
    check_same(whole)


def test_best_weights_are_kept(recipe: Recipe, whole: Path) -> None:
    recipe = recipe.with_fields(weights="best")
    with interrupted(7, "SIGTERM"):
        train(recipe, output=CUT)
    train(recipe, resume=CUT)
    best = read_checkpoint(BEST)
    errors = [row["validation_error"] for row in rows_without_times(whole) if row["validation_error"] is not None]
    assert best["global_step"] == 4 * (errors.index(min(errors)) + 1) < 12  # or this test shows nothing
    found = load_file(CUT / "model.safetensors")
    assert weights(CUT) != weights(whole)
    assert all(torch.equal(value, best["state_dict"][f"network.{name}"]) for name, value in found.items())
    assert json.loads((CUT / "result.json").read_text())["weights"] == "best"


def test_without_validation(recipe: Recipe) -> None:
    recipe = recipe.with_fields(validation="none")
    train(recipe, output=Path("whole"))
    with interrupted(5, "power cut"):
        train(recipe, output=CUT)
    train(recipe, resume=CUT)
    check_same(Path("whole"))
    assert not BEST.exists()
    assert all(row["validation_error"] is None for row in rows_without_times(CUT))
    result = json.loads((CUT / "result.json").read_text())
    assert result["validation_error"] is result["best_validation_error"] is None


def no_space_at(step: int, patch: pytest.MonkeyPatch, *, as_torch_says_it: bool) -> None:
    """The disk is full from a checkpoint of that step on."""
    original = torch.save

    def save(values: Any, file: Any) -> None:
        if values["global_step"] < step:
            return original(values, file)
        try:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            if as_torch_says_it:  # leaving its zip file, torch.save hides what went wrong
                raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0") from None
            raise

    patch.setattr("torchcaps.train.checkpoints.torch.save", save)


@pytest.mark.parametrize("as_torch_says_it", [False, True])
def test_full_disk_under_a_checkpoint(
    recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch, as_torch_says_it: bool
) -> None:
    with monkeypatch.context() as patch:
        no_space_at(6, patch, as_torch_says_it=as_torch_says_it)
        with pytest.raises(UserError, match=r"last\.ckpt cannot be written: No space left on device"):
            train(recipe, output=CUT)
    assert read_checkpoint(LAST)["global_step"] == 4
    assert not list(CUT.rglob(f"*{PART}"))
    train(recipe, resume=CUT)
    check_same(whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_full_disk_under_the_metrics(recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.open

    def open_full(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        return original(Path("/dev/full") if mode == "a" and path.name == "metrics.csv" else path, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with pytest.raises(UserError, match=r"metrics\.csv cannot be written: No space left on device"):
            train(recipe, output=CUT)
    train(recipe, resume=CUT)
    check_same(whole)


def test_leftovers_of_a_killed_process_are_removed(recipe: Recipe) -> None:
    with interrupted(5, "power cut"):
        train(recipe, output=CUT)
    (CUT / "checkpoints" / f".last.ckpt.01234567{PART}").write_bytes(b"half of it")
    train(recipe, resume=CUT)
    assert sorted(path.name for path in (CUT / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_images_that_changed_meanwhile(recipe: Recipe, images: Path) -> None:
    shutil.copytree(images, "images")
    recipe = recipe.with_fields(data="images")
    with interrupted(5, "SIGTERM"):
        train(recipe, output=CUT)
    for number in range(100, 110):
        Image.new("L", (18, 18), number).save(f"images/left/{number}.png")
    with pytest.raises(UserError, match=r"other images.*samples 34"):
        train(recipe, resume=CUT)


def test_order_and_weights_come_from_the_seed(recipe: Recipe, whole: Path) -> None:
    torch.manual_seed(7)  # the process's own state is no part of a run
    torch.rand(3)
    train(recipe, output=Path("again"))
    assert weights(Path("again")) == weights(whole)
    train(recipe.with_fields(seed=1), output=Path("other"))
    assert weights(Path("other")) != weights(whole)
