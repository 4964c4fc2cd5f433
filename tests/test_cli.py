"""The ``torchcaps`` command."""

import re
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import torchcaps
from torchcaps.cli import main


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    rows = {line.split()[1]: line.split()[3::2] for line in capsys.readouterr().out.splitlines() if "1x" in line}
    assert rows == {
        "cnn32": ["393,738", "0", "1x32x32"],
        "cnn64": ["791,941", "0", "1x64x64"],
        "hybrid32": ["865,638", "126,050", "1x32x32"],
        "hybrid64": ["1,238,553", "89,237", "1x64x64"],
        "poolcaps32": ["490,202", "115,402", "1x32x32"],
        "poolcaps64": ["858,885", "74,357", "1x64x64"],
    }


def test_models_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchcaps, "list_models", lambda: ["cnn32", "hybrid32"])
    main(["models", "--run"])
    times = re.findall(r"1x32x32 \S ([0-9.]+) s ", capsys.readouterr().out)
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
    code = "import sys; from torchcaps.cli import main; sys.exit(main())"
    for arguments, status in ((["--version"], 0), (["nonsense"], 2)):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
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
