from pathlib import Path

import pytest
import torch

from data_files import idx_contents, put
from experiments.tools.fine_tune import choose, main


def test_choose_takes_as_many_of_each_class() -> None:
    labels = torch.randint(3, (200,), generator=torch.Generator().manual_seed(0))
    chosen = choose(labels, 4, seed=1)
    assert labels[chosen].bincount().tolist() == [4, 4, 4]
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert not torch.equal(chosen, choose(labels, 4, seed=2))


def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = put(tmp_path / "mnist", idx_contents(train=40, test=30))
    main(["--root", str(root), "--per-class", "1", "--test-images", "10", "--seeds", "0", "--epochs", "1"])
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "fine-tuned",
        "fine-tuned with a frozen body",
        "trained from scratch",
    ]
    assert all(0 <= float(line.split(" | ")[1].split("\N{NO-BREAK SPACE}")[0]) <= 100 for line in lines[2:])
