"""``torchcaps compare``."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from run_folders import call, make_run
from torchcaps.classifier import Classifier, evaluate, load, save
from torchcaps.classifier.metrics import calibration_error
from torchcaps.cli.compare import compare_command, short_names
from torchcaps.cli.tables import natural_width, side_by_side
from torchcaps.errors import UserError
from torchcaps.train.assemble import load_data
from torchcaps.train.recipe import Recipe

Output, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


@pytest.fixture
def runs(photos: Path, tmp_path: Path) -> list[Path]:
    """Three that differ in the seed, and the last one in its network, too."""
    fields = ({"seed": 0}, {"seed": 1}, {"seed": 1, "model": "cnn32"})
    return [
        make_run(tmp_path / f"run-{number}", photos, transform_std=0.5, **of_run)
        for number, of_run in enumerate(fields)
    ]


def test_numbers(
    runs: list[Path], photos: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (runs[0] / "result.json").write_text('{"seconds": 12.5}')
    call(compare_command, *runs[:2], "--json")
    found = json.loads(capsys.readouterr().out)
    test = load_data(Recipe.of(data=str(photos), size=16)).test
    networks = [load(run) for run in runs[:2]]
    expected = [evaluate([network], test) for network in networks]
    assert [entry["name"] for entry in found["runs"]] == ["run-0", "run-1"]
    assert [entry["run"] for entry in found["runs"]] == [str(run) for run in runs[:2]]
    assert [entry["error"] for entry in found["runs"]] == [one.error for one in expected]
    assert [tuple(entry["interval"]) for entry in found["runs"]] == [one.interval for one in expected]
    assert [entry["calibration_error"] for entry in found["runs"]] == [calibration_error(one) for one in expected]
    assert [entry["parameters"] for entry in found["runs"]] == [net.network.parameter_count() for net in networks]
    assert [entry["seconds"] for entry in found["runs"]] == [12.5, None]
    assert found["settings"] == {"seed": [0, 1]}
    first, second = (one.predicted == one.label for one in expected)
    only = [int((first & ~second).sum()), int((second & ~first).sum())]
    assert [found["mcnemar"]["only_first"], found["mcnemar"]["only_second"]] == only
    assert (found["images"], found["page"]) == (len(test), None)
    assert not Path("compare.html").exists()
    call(compare_command, *runs[:2], "--json", "--output", "new/page.html", "--split", "validation")
    assert json.loads(capsys.readouterr().out)["page"] == "new/page.html"
    assert "validation error" in Path("new/page.html").read_text()


def test_table_and_page(runs: list[Path], photos: Path, tmp_path: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    call(compare_command, *runs[:2])
    shown = capsys.readouterr().out
    assert re.search(r"│ seed +│ +0 │ +1 │", shown)
    assert re.search(r"│ parameters +│ +[\d,]+ │ +[\d,]+ │", shown)
    assert "model" not in shown
    assert "right on" in shown
    assert shown.splitlines()[-1] == "page: compare.html"
    page = Path("compare.html").read_text()
    assert "<h1>2 runs on photos</h1>" in page
    call(compare_command, *runs, "--output", "all.html", "--data", photos)
    shown = capsys.readouterr().out
    assert "cnn32" in shown
    assert "McNemar" not in shown
    files = re.findall(r'href="file://([^"]*)"', Path("all.html").read_text())
    assert files
    assert all(Path(name).is_file() for name in files)


def test_a_saved_network_on_a_folder(
    tiny: Callable[..., Classifier], runs: list[Path], photos: Path, tmp_path: Path, capsys: Output
) -> None:
    """Nothing is known of how it was trained: its settings are left open."""
    save(tiny(names=("ant", "bee", "cat")), tmp_path / "saved")
    call(compare_command, runs[0], tmp_path / "saved", "--data", photos, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 15
    assert found["settings"]["epochs"] == [50, None]


def test_what_is_refused(tiny: Callable[..., Classifier], runs: list[Path], photos: Path, tmp_path: Path) -> None:
    save(tiny(), tmp_path / "saved")
    (tmp_path / "others").symlink_to(photos)
    other = make_run(tmp_path / "other", tmp_path / "others")
    refused = {
        (runs[0],): "needs two runs or more, and got 1",
        (runs[0], runs[1], runs[0] / "." / ""): "run-0 is given twice",
        (runs[0], tmp_path / "nowhere"): "there is no .*nowhere",
        (runs[0], tmp_path / "saved"): "run-0 and .*saved differ in their classes",
        (runs[0], other): "run-0 and .*other differ in their data, .*photos and .*others: expected runs on the same",
        (runs[0], runs[1], "--output", tmp_path): "is a folder: expected the name of a file",
    }
    for arguments, message in refused.items():
        with pytest.raises(UserError, match=message):
            call(compare_command, *arguments)


def test_names(tmp_path: Path) -> None:
    for name in ("a/run", "b/run", "b/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/run/model.safetensors").touch()
    assert short_names([tmp_path / "a/run/model.safetensors", tmp_path / "b/other"]) == ["run", "other"]
    assert short_names([tmp_path / "a/run", tmp_path / "b/run"]) == [str(tmp_path / "a/run"), str(tmp_path / "b/run")]
    assert short_names([Path("mnist"), tmp_path / "a/run"]) == ["mnist", "run"]


@pytest.mark.parametrize("width", [60, 80])
def test_many_runs_are_several_tables(width: int) -> None:
    names = [f"[b]run-{number}" for number in range(7)]
    facts = {"error": ["12.34 %"] * 7, "95 % interval": ["10.00 to 14.00 %"] * 7}
    tables = side_by_side(Console(width=width), names, facts, {"seed": [str(number) for number in range(7)]})
    assert all(natural_width(table) <= width for table in tables)
    headings = [str(column.header) for table in tables for column in table.columns if str(column.header)]
    assert headings == names
    assert len(tables) == (4 if width == 60 else 3)
