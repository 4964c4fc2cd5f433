"""The command line, and which data a result is said to be of."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from data_files import idx_contents, norb_contents, put, small_source
from experiments.__main__ import main
from experiments.results import data_title
from fake_results import put_result, recipe_json
from torchcaps.data.sources import MNIST, SMALLNORB, SOURCES

Capture = pytest.CaptureFixture[str]


def complaint(capsys: Capture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit_info:
        main([*arguments])
    assert exit_info.value.code == 2
    return capsys.readouterr().err


def test_neither_target_nor_report(capsys: Capture) -> None:
    err = complaint(capsys)
    targets = "table1, table2, table3, losses, reconstructions, claims, iterations, objects, viewpoints, trials, all"
    assert f"expects one of {targets}, or --report" in err


def test_unknown_target(capsys: Capture) -> None:
    assert "table4" in complaint(capsys, "table4")


def test_only_without_a_run(capsys: Capture) -> None:
    err = complaint(capsys, "table1", "--only", "mnist")
    assert "--only mnist" in err
    assert "smallnorb-frms, smallnorb-frem, smallnorb-em, smallnorb-cnn, smallnorb-frem-deformed, " in err


def test_only_with_nothing(capsys: Capture) -> None:
    assert "--only expects names or parts of names; there are smallnorb-frms, " in complaint(capsys, "table1", "--only")


@pytest.mark.parametrize("options", [["--list"], ["--again"], ["--only", "frem"], ["--only"], ["--budget", "full"]])
def test_options_without_a_target(capsys: Capture, options: list[str]) -> None:
    for report in ([], ["--report"]):
        assert f"{options[0]} expects one of table1, table2, " in complaint(capsys, *report, *options)
    assert not Path("docs").exists()


def test_list_and_report(capsys: Capture) -> None:
    assert "leave out --list, or --report" in complaint(capsys, "table1", "--list", "--report")
    assert "leave out --list" in complaint(capsys, "table1", "--list", "--again")
    assert "add --report, or leave --output out" in complaint(capsys, "table1", "--output", "docs")


def test_ctrl_c_between_two_runs(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def press_ctrl_c(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.queue.run_jobs", press_ctrl_c)
    call = ["table3", "--budget", "quick", "--only", "mnist-cnn", "--root", "a b", "--again"]
    call += ["--results", "r", "--runs", "s", "--report", "--output", "out"]
    with pytest.raises(SystemExit) as exit_info:
        main(call)
    assert exit_info.value.code == 130
    assert (
        f"stopped by Ctrl-C; continue with: {shlex.join(['python', '-m', 'experiments', *call])}\n"
        in capsys.readouterr().out
    )


def test_missing_data(capsys: Capture) -> None:
    Path("empty").mkdir()
    err = complaint(capsys, "table3", "--only", "cifar10-frem", "--root", "empty")
    assert "CIFAR-10 is in none of these" in err
    assert not Path("runs").exists()


def test_list(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    put_result(Path("experiments/results/short"), "smallnorb-em", 0.125, recipe=recipe_json("smallnorb-em", rate=0.5))
    main(["table1", "--list"])
    lines = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ").splitlines()
    cells = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]] for line in lines if "│" in line
    }
    assert cells["smallnorb-frem"] == ["smallnorb", "hybrid64", "6", "2.2 %", "not run"]
    assert cells["smallnorb-em"][3] == "2.3 %"
    assert cells["smallnorb-em"][4].startswith("done: 12.50 %; of another recipe: rate 0.5, now ")
    assert cells["times"][-1] == "not run"
    assert not Path("runs").exists()


def test_data_is_named_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_title("turntable", None) == "turntable"
    for name, original, contents in (("mnist", MNIST, idx_contents()), ("smallnorb", SMALLNORB, norb_contents())):
        source, _ = small_source(original, contents)
        monkeypatch.setitem(SOURCES, name, source)
        put(tmp_path / "official" / name, contents)
        copy = {
            file: content[:-1] + bytes([content[-1] ^ 1]) if is_images(file) else content
            for file, content in contents.items()
        }
        put(tmp_path / "copy" / name, copy)
    assert data_title("mnist", tmp_path / "official") == "MNIST"
    assert data_title("mnist", tmp_path / "copy") == "MNIST (not the official files)"
    assert data_title("smallnorb", tmp_path / "official") == "smallNORB"
    assert data_title("smallnorb", tmp_path / "copy") == "smallNORB (JPEG copy)"


def is_images(file: str) -> bool:
    return "dat" in file or "images" in file
