"""Real processes that are killed, and what they leave."""

import random
import signal
import subprocess
from pathlib import Path

import pytest

from train.tiny_runs import finish, read_until, rows_without_times, start, tiny_fields, weights

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")

EPOCHS = 80  # of four steps: some seconds, longer than the three lives before the last


def test_killed_three_times_ends_with_the_same_bits(images: Path, tmp_path: Path) -> None:
    fields = tiny_fields(images, epochs=EPOCHS, **{"checkpoint-every": 3})
    whole = start("train", *fields, "--output", "whole", folder=tmp_path)
    out, err = finish(whole)
    assert whole.returncode == 0, err
    assert err == ""  # neither Lightning's banners nor warnings
    assert "\x1b" not in out
    assert out.splitlines()[-1].startswith("test error: ")

    moments = random.Random(5)
    arguments = [*fields, "--output", "killed"]
    for _ in range(3):
        process = start("train", *arguments, folder=tmp_path)
        read_until(process, "run folder: killed")
        with pytest.raises(subprocess.TimeoutExpired):  # or it was faster, and there is nothing to kill
            process.wait(timeout=moments.uniform(0.3, 1.6))
        process.kill()
        _, err = finish(process)
        assert process.returncode == -signal.SIGKILL, err
        arguments = ["--resume", "killed"]
    assert (tmp_path / "killed/checkpoints/last.ckpt").is_file()
    assert not (tmp_path / "killed/model.safetensors").exists()

    last = start("train", *arguments, folder=tmp_path)
    _, err = finish(last)
    assert last.returncode == 0, err
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert rows_without_times(tmp_path / "killed") == rows_without_times(tmp_path / "whole")


def test_signals_end_a_process_behind_a_checkpoint(images: Path, tmp_path: Path) -> None:
    arguments = [*tiny_fields(images, epochs=500), "--output", "run"]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = start("train", *arguments, folder=tmp_path)
        read_until(process, "epoch ")
        process.send_signal(number)
        out, err = finish(process)
        assert (process.returncode, err) == (code, "")
        last = out.splitlines()[-1]
        assert last.startswith("stopped after step ")
        assert last.endswith(f"by {number.name}; go on with: torchcaps train --resume run")
        arguments = ["--resume", "run"]
