"""``torchcaps doctor``, and its check."""

import json
import math
from typing import Any

import pytest
from torch import Tensor

from nn.test_check import WrongCore
from torchcaps.cli import main
from torchcaps.nn import check
from torchcaps.nn.check import Comparison, Value
from torchcaps.ops import native

GOOD = Comparison("cpu", "native", "2x2 fields", "FREM", [Value("pose", 1e-6, 1e-4), Value("activation", 1e-5, 1e-4)])
WRONG = Comparison("cpu", "native", "class, shared", "EM", [Value("gradient of log_bandwidth", 2e-3, 1e-4)])
REFUSED = Comparison("cpu", "native", "class, coordinates", "FRMS", refused="the core has no [b]coordinates[/b]")
RAISED = Comparison("cpu", "native", "residual, 3x3", "", raised="RuntimeError: [out] of memory")
NOT_FINITE = Comparison("cpu", "native", "primary head", "", [Value("pose", math.nan, 1e-4)])


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("torchcaps.cli.doctor.here", lambda: ["cpu"])
    monkeypatch.setattr("torchcaps.cli.doctor.backends", lambda device, compiled: ["native"])


def doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    code = 0
    try:
        main(["doctor", *options])
    except SystemExit as exit_info:
        code = int(exit_info.code or 0)
    return code, capsys.readouterr().out


def finds(monkeypatch: pytest.MonkeyPatch, *found: Comparison) -> None:
    monkeypatch.setattr("torchcaps.cli.doctor.compare", lambda device, backend: iter(found))


@pytest.mark.skipif(native.core is None, reason="needs the native core")
def test_the_check_passes_here(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = doctor(capsys, "--check")
    assert code == 0
    assert "native on cpu" in [line.strip() for line in shown.splitlines()]
    assert shown.endswith("no difference beyond what float32 loses\n")
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert sum(line.startswith("│") for line in shown.splitlines()) > len(check.cases())


def test_a_difference_exits_with_1_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, GOOD, WRONG, REFUSED, RAISED, NOT_FINITE)
    code, shown = doctor(capsys, "--check")
    assert code == 1
    assert all(len(line) <= 80 for line in shown.splitlines())
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert rows[-5:] == [
        ["2x2 fields", "FREM", "activation", "1.0e-05", "1.0e-04"],
        ["class, shared", "EM", "gradient of log_bandwidth", "2.0e-03", "1.0e-04"],
        ["class, coordinates", "FRMS", "not served", "-", "-"],
        ["residual, 3x3", "-", "raised an error", "-", "-"],
        ["primary head", "-", "pose", "nan", "1.0e-04"],
    ]
    assert " ".join(shown.split("nearest to that.")[1].split()) == (
        "differs: native on cpu: EM class, shared: gradient of log_bandwidth is off by 2.0e-03, allowed 1.0e-04 "
        "differs: native on cpu: residual, 3x3: raised RuntimeError: [out] of memory "
        "differs: native on cpu: primary head: pose is not finite"
    )


@pytest.mark.skipif(native.core is None, reason="needs the native core")
def test_a_broken_core_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(*arguments: Any) -> None:
        gradients = [a for a in arguments[9:] if isinstance(a, Tensor)]  # after inputs, outputs and their gradients
        gradients[0].mul_(1.01)  # of the poses

    monkeypatch.setattr(native, "core", WrongCore("backward", spoil))
    code, shown = doctor(capsys, "--check")
    assert code == 1
    failures = " ".join(shown.split("nearest to that.")[1].split()).split("differs: ")[1:]
    assert len(failures) == 15  # three methods with five layers
    assert failures[0].startswith("native on cpu: EM 2x2 fields: gradient of pose is off by 1.0e-02, allowed ")


def test_a_backend_that_is_not_there_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, REFUSED)
    code, shown = doctor(capsys, "--check")
    assert code == 0
    assert "native on cpu: not available: the core has no [b]coordinates[/b]" in shown


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, GOOD, WRONG, NOT_FINITE)
    code, shown = doctor(capsys, "--check", "--json")
    found = json.loads(shown, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert code == 1
    assert len(found["failures"]) == 2
    assert found["comparisons"][1]["layer"] == "class, shared"
    assert found["comparisons"][1]["values"] == [
        {"name": "gradient of log_bandwidth", "error": 2e-3, "allowed": 1e-4, "differs": True}
    ]
    assert found["comparisons"][2]["values"][0] == {"name": "pose", "error": None, "allowed": 1e-4, "differs": True}
    code, shown = doctor(capsys, "--json")
    assert code == 0
    assert set(json.loads(shown)) == {"findings"}


def test_compiled_is_a_part_of_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["doctor", "--compiled"])
    assert exit_info.value.code == 2
    assert "expected --check --compiled" in capsys.readouterr().err
