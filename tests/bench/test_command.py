"""The whole command, small."""

import json
import sys
from pathlib import Path

import pytest

from bench.tiny_plan import tiny_plan
from torchcaps.bench import networks, routing
from torchcaps.bench.plan import PARTS, full_plan, quick_plan
from torchcaps.bench.plots import PLOTS
from torchcaps.cli import bench as command
from torchcaps.cli.bench import bench
from torchcaps.errors import UserError
from torchcaps.ops import native

needs_core = pytest.mark.skipif(native.core is None, reason="the benchmark measures the native core")
needs_matplotlib = pytest.mark.usefixtures("_matplotlib")


@pytest.fixture
def _matplotlib() -> None:
    pytest.importorskip("matplotlib")


@pytest.mark.slow
@needs_core
@needs_matplotlib
def test_a_run_writes_json_plots_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "quick_plan", tiny_plan)
    for part in (routing, networks):  # the probe has tests of its own
        monkeypatch.setattr(part, "peak_memory", lambda cases: [2**20 * (n + 1) for n in range(len(cases))])
    monkeypatch.setenv("COLUMNS", "200")
    bench(quick=True, output=tmp_path)
    shown = capsys.readouterr().out

    results = json.loads((tmp_path / "bench.json").read_text())
    assert list(results["parts"]) == list(PARTS)
    assert results["machine"]["threads"] >= 1
    assert len(results["parts"]["networks"]["seconds"]["native/frem/training"]) == 2
    assert results["parts"]["networks"]["seconds"]["reference/frem/training"][1] is None
    for part in PLOTS:
        assert (tmp_path / f"{part}.png").read_bytes().startswith(b"\x89PNG")

    bench(output=tmp_path, markdown=True)
    markdown = capsys.readouterr().out
    for title in (
        "Routing alone, forward and backward, batch 1",
        "Time of all layers relative to EM routing",
        "Networks, batch 1",
        "In short",
        "Growth of a native FREM training step",
        "Native forward kernels against the machine, batch 1",
        "The training loop, 32x32 crops, batch 1",
        "Batch normalisation, batch 1",
        "The networks of our recipes, batch 1",
    ):
        assert title in shown
        assert f"### {title}\n" in markdown
    assert "nan" not in markdown
    tables = [block for block in markdown.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


@needs_core
@needs_matplotlib
def test_only_some_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(command, "full_plan", tiny_plan)
    bench(output=tmp_path / "new", only="limits")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["bench.json", "limits.png"]
    assert "bench.json, limits.png" in capsys.readouterr().out
    bench(output=tmp_path / "new", only="limits")  # the same again
    with pytest.raises(UserError, match=r"bench\.json also has limits, which this run would drop"):
        bench(output=tmp_path / "new", only="norm")


def test_a_wrong_part(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="no part speed; expected some of routing, networks, growth, limits, loop, norm, recipes"
    ):
        bench(output=tmp_path, only="routing,speed")


@needs_matplotlib
def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(native, "MISSING", "no core")
    with pytest.raises(UserError, match="no core"):
        bench()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'torchcaps\[bench\]'"):
        bench()


def test_tables_of_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no .*bench\.json: run torchcaps bench first"):
        bench(output=tmp_path, markdown=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"parts": {}}', '{"parts": {"norm": []}, "machine": 1}'])
def test_tables_of_another_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(UserError, match=r"bench\.json is not what torchcaps bench writes"):
        bench(output=tmp_path, markdown=True)


def test_plans() -> None:
    full, quick = full_plan(), quick_plan()
    assert full.backends == ("native", "compiled", "reference")
    assert full.batch == 50
    assert quick.backends == ("native", "reference")
    for plan in (full, quick):  # a slow backend has at least one round, and the native one has them all
        assert plan.every["native"] == 1
        assert max(plan.every.values()) <= plan.rounds
