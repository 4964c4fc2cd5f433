"""Real processes that are killed, and what they leave."""

import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from train.tiny_runs import finish, read_until, rows_without_times, start, tiny_fields, weights

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")

EPOCHS = (20, 80, 320, 1280)  # of four steps each: the next where a machine is through before it could be killed
PATIENCE = 300.0  # seconds in which a life must bring a checkpoint, however loaded the machine is


@pytest.mark.slow
def test_killed_three_times_ends_with_the_same_bits(images: Path, tmp_path: Path) -> None:
    for epochs in EPOCHS:
        fields = tiny_fields(images, epochs=epochs, **{"checkpoint-every": 3})
        killed = f"killed-{epochs}"
        moments = random.Random(5)
        if all(
            lives_until_killed(arguments, tmp_path / killed, moments.uniform(0, 0.2))
            for arguments in ([*fields, "--output", killed], ["--resume", killed], ["--resume", killed])
        ):
            break
    else:
        raise AssertionError(f"runs of {EPOCHS} epochs all ended before they were killed three times")
    assert not (tmp_path / killed / "model.safetensors").exists()

    last = start("train", "--resume", killed, folder=tmp_path)
    _, err = finish(last)
    assert last.returncode == 0, err
    whole = start("train", *fields, "--output", "whole", folder=tmp_path)
    out, err = finish(whole)
    assert whole.returncode == 0, err
    assert err == ""  # neither Lightning's banners nor warnings
    assert "\x1b" not in out
    *_, error, report = out.splitlines()
    assert error.startswith("test error: ")
    assert report == "report: whole/report.html"
    assert weights(tmp_path / killed) == weights(tmp_path / "whole")
    assert rows_without_times(tmp_path / killed) == rows_without_times(tmp_path / "whole")


def lives_until_killed(arguments: list[str], run: Path, longer: float) -> bool:
    """Train until there is a new checkpoint and some moments longer, then kill; False where the run ended by itself."""
    checkpoint = run / "checkpoints/last.ckpt"
    before, give_up = age(checkpoint), monotonic() + PATIENCE
    process = start("train", *arguments, folder=run.parent)
    while process.poll() is None and age(checkpoint) == before and monotonic() < give_up:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=longer)
    process.kill()
    _, err = finish(process)
    assert age(checkpoint) != before, f"no new checkpoint: {err}"
    assert process.returncode in (0, -signal.SIGKILL), err
    return process.returncode != 0


def age(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


@pytest.mark.slow
def test_signals_end_a_process_after_a_checkpoint(images: Path, tmp_path: Path) -> None:
    arguments = [*tiny_fields(images, epochs=500), "--output", "run"]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = start("train", *arguments, folder=tmp_path)
        read_until(process, "epoch ")
        process.send_signal(number)
        out, err = finish(process)
        assert (process.returncode, err) == (code, "")
        last = out.splitlines()[-1]
        assert last.startswith("stopped after step ")
        assert last.endswith(f"by {number.name}; continue with: torchcaps train --resume run")
        arguments = ["--resume", "run"]
