"""The document, from results that were made by hand."""

from pathlib import Path
from typing import Any

import pytest

from report.test_page import Page
from reproduce.fakes import put_result
from torchcaps.cli import main
from torchcaps.reproduce.budgets import BUDGETS
from torchcaps.reproduce.cells import Experiments
from torchcaps.reproduce.claims import claims
from torchcaps.reproduce.results import Result, read_results, write_result
from torchcaps.reproduce.trials import Trial

SPACE, MINUS = "\N{NO-BREAK SPACE}", "\N{MINUS SIGN}"
SHORT = Path("results/short")


def report() -> str:
    """The markdown file, with plain spaces and minus signs."""
    main(["reproduce", "--report", "--output", "docs"])
    return Path("docs/results.md").read_text().replace(SPACE, " ").replace(MINUS, "-")


def chapter(text: str, title: str) -> str:
    return text.partition(f"\n## {title}")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if line[0] != "---"]


def test_nothing_was_run() -> None:
    text = report()
    for title in ("Table 1", "Table 2", "Table 3", "Losses", "Reconstructions", "Side claims"):
        assert "not run" in chapter(text, title)
    assert text.count("| not run |") >= 4 + 15 + 12 + 6
    assert "Rehearsal" not in text
    assert not Path("docs/images").exists()


def test_difference_and_what_it_is_of() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    put_result(SHORT, "smallnorb-cnn", 0.1035, recipe={"model": "cnn64"}, epochs=1)
    table = rows(chapter(report(), "Table 1"))
    assert ["FREM", "2.2 %", "18.10 %", "+15.90", "hybrid64, 6 epochs, seed 0, smallNORB (JPEG copy)"] in table
    assert ["CNN", "11.3 %", "10.35 %", "-0.95", "cnn64, 1 epoch, seed 0, smallNORB (JPEG copy)"] in table
    assert ["FRMS", "2.6 %", "not run", "\N{EN DASH}", "\N{EN DASH}"] in table


def test_ensemble_and_failure() -> None:
    put_result(SHORT, "cifar10-em", 0.12, seeds=[0, 1, 2])
    put_result(SHORT, "mnist-frms", None)
    table = rows(chapter(report(), "Table 3"))
    assert ["CIFAR-10", "EM", "11.6 %", "12.00 %", "+0.40"] in [row[:5] for row in table]
    assert any("ensemble of seeds 0, 1, 2" in row[-1] for row in table)
    assert ["MNIST", "FRMS", "0.42 %", "failed: not finite", "\N{EN DASH}"] in [row[:5] for row in table]


def test_cells_of_table_2() -> None:
    put_result(SHORT, "ablation-em-3-0.1", 0.3)
    table = rows(chapter(report(), "Table 2"))
    assert len(table) == 1 + 15
    assert ["EM", "3", "0.1", "5.8 %", "30.00 %", "+24.20"] in [row[:6] for row in table]


def test_introduction() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    head = report().partition("\n## ")[0]
    for words in ("one seed", "a small one, 2 cores", "JPEG copy", "evaluated once", "torchcaps reproduce --report"):
        assert words in head
    assert "torchcaps reproduce table2 --budget short" in report()


def test_rehearsals_never_stand_beside_results() -> None:
    put_result(Path("results/quick"), "smallnorb-frem", 0.7777)
    text = report()
    assert text.startswith("# Rehearsal: these numbers mean nothing\n")
    assert "77.77 %" in text
    assert "Rehearsal: these numbers mean nothing" in Path("docs/results.html").read_text()
    put_result(SHORT, "mnist-frem", 0.01)
    text = report()
    assert "77.77 %" not in text
    assert "Rehearsal" not in text
    put_result(Path("results/trials"), "frem", None, failed=None, trial=trial())
    (SHORT / "mnist-frem.json").unlink()
    assert "77.77 %" not in report()


def test_budgets_have_tables_of_their_own() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    put_result(Path("results/full"), "smallnorb-frem", 0.03, epochs=50)
    text = chapter(report(), "Table 1")
    short, _, full = text.partition("### Full budget")
    assert "18.10 %" in short
    assert "18.10 %" not in full
    assert "3.00 %" in full
    assert "3.00 %" in chapter(report(), "Table 2").partition("### Full budget")[2]  # the same run


def test_same_results_same_bytes() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181, picture=True)
    put_result(SHORT, "ablation-frem-2-0.1", 0.2)
    put_result(SHORT, "ablation-em-2-0.1-margin", 0.3)
    first = [main(["reproduce", "--report", "--output", name]) or files(Path(name)) for name in ("one", "two")]
    assert first[0] == first[1]
    assert set(first[0]) == {
        "results.md",
        "results.html",
        "images/results-losses-short.png",
        "images/results-short-smallnorb-frem.png",
    }


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_page_is_well_formed_and_needs_nothing_else() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181, picture=True)
    put_result(SHORT, "ablation-frem-2-0.1", 0.2)
    put_result(SHORT, "ablation-frem-2-0.1-margin", 0.2)
    Path("docs").mkdir()
    Path("docs/results-notes.md").write_text("We saw **much**, <script>no</script>.\n\n- `one`\n- two\n")
    text = report()
    assert chapter(text, "What we learned").strip().startswith("We saw **much**")
    page = Page(Path("docs/results.html").read_text())
    assert page.sections() == [
        "learned",
        "table1",
        "table2",
        "table3",
        "losses",
        "reconstructions",
        "claims",
        "trials",
    ]
    assert all(image["src"].startswith("data:image/png") for image in page.all("img"))
    assert len(page.all("img")) == 1
    assert len(page.all("svg")) == 4
    assert not page.all("script")
    assert {"strong", "code", "li"} <= {name for name, _ in page.elements}
    assert "18.10" in page.words()
    for part in text.split("\n\n"):
        if part.startswith("| "):
            assert len({line.count("|") for line in part.splitlines()}) == 1, part


def trial(**changes: Any) -> dict[str, Any]:
    return {"group": "weights", "base": "smallnorb-frem-quick", "changes": {"rate": 0.002}, "asks": "why?", **changes}


def test_trials_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [("start", "plain"), ("decoder", "without"), ("weights", "decay")]
    trials = [Trial(group=group, name=name, base="smallnorb-frem-quick") for group, name in listed]
    monkeypatch.setattr("torchcaps.reproduce.tables.TRIALS", trials)
    folder = Path("results/trials")
    put_result(folder, "decay", None, failed=None, trial=trial())
    put_result(folder, "plain", None, failed=None, trial=trial(group="start", changes={}))
    put_result(folder, "without", None, trial=trial(group="decoder"), validation_error=[], training_error=[])
    put_result(folder, "a-former-one", None, failed=None, trial=trial(group="gone"))
    table = rows(chapter(report(), "What was tried"))[1:]
    assert [row[1] for row in table] == ["plain", "without", "decay", "a-former-one"]
    assert table[0][2] == "smallnorb-frem-quick: nothing"
    assert table[1][4:7] == ["\N{EN DASH}", "\N{EN DASH}", "failed: not finite"]
    changed = ["weights", "decay", "smallnorb-frem-quick: rate 0.002", "why?"]
    assert table[2] == [*changed, "12.50 %", "30.00 %", "40.00 %", "6", "1 min 15 s"]


def test_times_as_ratios() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    seconds = {f"native/{method}/{mode}": [0.4, 0.5] for method in ("frms", "frem", "em") for mode in MODES}
    seconds |= {f"cnn/{mode}": [0.2, 0.2] for mode in MODES}
    machine = dict.fromkeys(("cpu", "cores", "threads", "vector_path", "torch", "torchcaps", "python", "date"), "x")
    values = {"name": "times", "machine": machine, "batch": 50, "backends": ["native"], "seconds": seconds}
    write_result(SHORT / "times.json", values)
    table = rows(chapter(report(), "Table 1"))
    assert ["FREM", "3.7", "2.25 (2.12 to 2.38, 2 rounds)", "450 (400)"] in [row[:4] for row in table]
    assert ["CNN", "1.0", "1", "200 (200)"] in [row[:4] for row in table]
    assert "times" not in read_results(SHORT)


MODES = ("inference", "training")


def verdicts(**errors: float | None) -> list[str]:
    """Of all claims, from the errors of runs by name (with dashes and dots as underscores)."""
    found = {}
    runs = Experiments(BUDGETS["short"])
    for cell in runs.cells("claims"):
        key = cell.job.name.removeprefix("ablation-").replace("-", "_").replace(".", "_")
        if key in errors:
            found[cell.job.name] = Result({"name": cell.job.name, "test_error": errors[key], "test_images": 10000})
    return [claim.verdict(found) for claim in claims(runs)]


def test_claims_that_were_not_run() -> None:
    assert verdicts() == ["not run"] * 6


def test_one_iteration() -> None:
    assert verdicts(frms_1_0_1=0.7, frem_1_0_1=0.61, em_1_0_1=None)[0] == "holds"
    assert verdicts(frms_1_0_1=0.3, frem_1_0_1=0.6, em_1_0_1=0.2)[0] == "does not hold"
    mixed = verdicts(frms_1_0_1=0.7, frem_1_0_1=0.2)[0]
    assert mixed == "holds for FRMS; does not hold for FREM; not run for EM"


@pytest.mark.parametrize(
    ("three", "verdict"),
    [(0.3, "holds"), (0.1, "does not hold"), (0.2, "too close to call"), (0.205, "too close to call"), (None, "holds")],
)
def test_three_iterations(three: float | None, verdict: str) -> None:
    errors = {f"{method}_3_0_1": three for method in ("frms", "frem", "em")}
    errors |= {f"{method}_2_0_1": 0.2 for method in ("frms", "frem", "em")}
    assert verdicts(**errors)[1] == verdict


def test_losses() -> None:
    errors = {f"{method}_2_0_1": 0.2 for method in ("frms", "frem", "em")}
    margin = {"frms_2_0_1_margin": 0.8, "frem_2_0_1_margin": 0.2, "em_2_0_1_margin": 0.7}
    assert verdicts(**errors, **margin)[3] == "holds"
    assert "does not hold for EM with margin loss" in verdicts(**errors, **{**margin, "em_2_0_1_margin": 0.2})[3]


def test_variant_and_residual() -> None:
    assert verdicts(frms_2_0_1_variant=0.75)[4] == "holds"
    assert verdicts(frem_2_0_1=0.2, frem_2_0_1_no_residual=0.5)[5] == "holds"
