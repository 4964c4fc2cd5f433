"""The ``torchcaps`` command."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
import torch
from rich.console import Console

import torchcaps
from torchcaps.classifier import Evaluation
from torchcaps.cli import main
from torchcaps.cli.tables import class_table, confusion_table, fitting_table, natural_width, run_table

RUN_MAIN = "import sys; from torchcaps.cli import main; sys.exit(main())"


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    rows = {line.split()[1]: line.split()[3::2] for line in capsys.readouterr().out.splitlines() if "1x" in line}
    assert rows == {
        "cnn32": ["393,738", "0", "1x32x32"],
        "cnn64": ["791,941", "0", "1x64x64"],
        "headcaps32": ["415,930", "41,130", "1x32x32"],
        "headcaps64": ["805,093", "20,565", "1x64x64"],
        "hybrid32": ["865,638", "126,050", "1x32x32"],
        "hybrid64": ["1,238,553", "89,237", "1x64x64"],
        "poolcaps32": ["490,202", "115,402", "1x32x32"],
        "poolcaps64": ["858,885", "74,357", "1x64x64"],
    }


def test_models_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchcaps, "list_models", lambda: ["cnn32", "hybrid32"])
    main(["models", "--run"])
    times = re.findall(r"1x32x32 \S +([0-9.]+) ms ", capsys.readouterr().out)
    assert len(times) == 2
    assert all(float(time) > 0 for time in times)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out.strip() == f"torchcaps {version('torchcaps')}"


@pytest.mark.parametrize("arguments", [["nonsense"], [], ["models", "--nonsense"]], ids=str)
def test_wrong_call_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    out = capsys.readouterr().out
    assert "models" in out
    assert "--version" in out


def test_console_script() -> None:
    [script] = [entry for entry in entry_points(group="console_scripts") if entry.name == "torchcaps"]
    assert script.load() is main
    for arguments, status in ((["--version"], 0), (["nonsense"], 2)):
        done = subprocess.run([sys.executable, "-c", RUN_MAIN, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert bool(done.stdout) == (status == 0)


def test_doctor_says_what_is_in_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    main(["doctor"])
    shown = capsys.readouterr().out
    for word in ("native", "vector path", "compiled", "reference", "threads", "OMP_WAIT_POLICY"):
        assert word in shown
    monkeypatch.setattr("torchcaps.ops.native.MISSING", "the native core is not built (for this test)")
    main(["doctor"])
    assert "not built (for this test)" in capsys.readouterr().out


def torchcaps_into(stdout: int | None, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command with an output that may be of no use, or without one."""
    call = [sys.executable, "-c", RUN_MAIN, *arguments]
    close = None if stdout is not None else lambda: os.close(1)
    return subprocess.run(call, stdout=stdout, stderr=subprocess.PIPE, check=False, preexec_fn=close)


@pytest.mark.parametrize("command", ["models", "--version"])
def test_a_reader_that_went_away(command: str) -> None:
    """As with ``torchcaps ... | head``: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = torchcaps_into(writing, command)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["models", "--version"])
def test_an_output_that_was_closed(command: str) -> None:
    done = torchcaps_into(None, command)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["models", "--version"])
def test_an_output_on_a_full_disk(command: str) -> None:
    with open("/dev/full", "wb") as full:
        done = torchcaps_into(full.fileno(), command)
    assert done.returncode == 2
    assert done.stderr == b"torchcaps: the output cannot be read or written: No space left on device\n"


# tables


def lines(capsys: pytest.CaptureFixture[str], width: int) -> list[str]:
    """What was printed, no line of a table wider than the terminal, and nothing cut."""
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines() if line[:1] in "┏┡│└")
    return shown.splitlines()


@pytest.mark.parametrize("width", [80, 60])
def test_data_list_fits(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    main(["data", "list"])
    shown = lines(capsys, width)
    rows = [line.split("│")[1].strip() for line in shown if line.startswith("│")]
    assert rows == ["mnist", "fashion-mnist", "cifar10", "smallnorb", "turntable"]  # one line each
    assert any(line.startswith("smallnorb: for research only") for line in shown)


@pytest.mark.parametrize("width", [80, 60])
def test_models_fit(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("torchcaps.cli.commands.seconds_of_a_step", lambda model: 0.25)
    main(["models", "--run"])
    rows = [line for line in lines(capsys, width) if line.startswith("│")]
    assert len(rows) == len(torchcaps.list_models())
    assert all("250.0 ms" in row for row in rows)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_tables_of_an_evaluation_fit(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(10).repeat(1000)
    found = Evaluation(classes=names, label=label, activation=torch.rand(10_000, 10, generator=generator))
    console = Console(width=width)
    console.print(class_table(console, found))
    rows = [line.split("│")[1].strip() for line in lines(capsys, width) if line.startswith("│")]
    assert rows == list(names)
    console.print(confusion_table(console, found))
    shown = lines(capsys, width)
    assert shown[0].strip() == ("Confusion matrix" if width >= 79 else "Most common confusions")
    console.print(run_table(console, [Path("runs") / ("long-" * 20)], [found], found))
    assert "".join(re.findall(r"[a-z/-]+", " ".join(lines(capsys, width)[3:]))).startswith("runs/long-")


def test_columns_are_dropped_in_turn() -> None:
    rows = [["a" * 10, "b" * 10, "c" * 10]]
    drop = ("two", "three")
    widths = {40: 3, 39: 2, 27: 2, 26: 1, 5: 1}  # 13 for each column, and 1
    for width, columns in widths.items():
        table = fitting_table(Console(width=width), ("one", "two", "three"), rows, drop=drop)
        assert len(table.columns) == columns
        assert natural_width(table) == 13 * columns + 1


# without the extras

LAYERS_ALONE = """
import sys
for name in ("tyro", "rich", "lightning", "torchmetrics", "PIL", "pooch", "filelock", "tensorboard", "matplotlib"):
    sys.modules[name] = None  # cannot be found
import torch
import torchcaps, torchcaps.functional, torchcaps.models, torchcaps.nn, torchcaps.ops
model = torchcaps.create_model("hybrid32", routing="frms")
output = model(torch.randn(2, 1, 32, 32))
output.activation.sum().backward()
assert output.pose.shape == (2, 10, 16)
assert torchcaps.functional.frem(torch.randn(5, 3, 16), torch.rand(5)).pose.shape == (3, 16)
for use in (lambda: torchcaps.fit, lambda: torchcaps.data.load("turntable", root=sys.argv[2])):
    import torchcaps.data
    try:
        use()
    except ImportError as error:
        assert "needs rich: pip install 'torchcaps[" in str(error), error
    else:
        raise AssertionError("works without rich")
from torchcaps.cli import main
main(sys.argv[1:2])
"""


def test_layers_need_no_extra_and_the_rest_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAYERS_ALONE, "models", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "torchcaps: the command line needs tyro and rich: pip install 'torchcaps[cli]'\n"
