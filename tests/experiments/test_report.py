"""The document, from results that were made by hand."""

import re
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.chapters import NOTES
from experiments.chapters import TRIED as TRIED_NOTES
from experiments.results import read_results, write_result
from experiments.story import interval_of_mean, runs_of, toys_of, toys_with_most
from experiments.trials import Trial
from fake_results import put_result, recipe_json, result_values

SPACE, MINUS = "\N{NO-BREAK SPACE}", "\N{MINUS SIGN}"
SHORT, TRIED = Path("experiments/results/short"), Path("experiments/results/trials")
MODES = ("inference", "training")
REPOSITORY = Path(__file__).parents[2]
PLAIN = "native with PyTorch's convolutions"


def report() -> str:
    """The markdown file, with plain spaces and minus signs."""
    main(["--report", "--output", "docs"])
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
    put_result(SHORT, "smallnorb-cnn", 0.1035, epochs=1)
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
    for words in ("one seed", "2 cores", "JPEG copy", "evaluated at its end", "python -m experiments --report"):
        assert words in head
    assert "\n1 run on a small one" in head
    assert "python -m experiments table2 --budget short" in report()


def test_introduction_to_trials_alone() -> None:
    assert "None of them was yet.\n" in report()
    for name in ("frem", "cnn"):
        put_result(Path("experiments/results/trials"), name, None, failed=None, trial=trial())
    head = report().partition("\n## ")[0]
    assert "None of them was yet: there are only trials" in head
    assert "\n2 trials on a small one" in head
    assert "evaluated at its end" not in head
    put_result(SHORT, "cifar10-em", 0.12, seeds=[0, 1, 2])
    put_result(SHORT, "mnist-em", 0.12)
    head = report().partition("\n## ")[0]
    assert "evaluated at its end" in head
    assert "\n1 run, 1 ensemble, 2 trials on a small one" in head


def test_rehearsals_never_stand_beside_results() -> None:
    put_result(Path("experiments/results/quick"), "smallnorb-frem", 0.7777)
    text = report()
    assert text.startswith("# Rehearsal: these numbers mean nothing\n")
    assert "77.77 %" in text
    put_result(SHORT, "mnist-frem", 0.01)
    text = report()
    assert "77.77 %" not in text
    assert "Rehearsal" not in text
    put_result(Path("experiments/results/trials"), "frem", None, failed=None, trial=trial())
    (SHORT / "mnist-frem.json").unlink()
    assert "77.77 %" not in report()


def test_budgets_have_tables_of_their_own() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    put_result(Path("experiments/results/full"), "smallnorb-frem", 0.03, epochs=50)
    text = chapter(report(), "Table 1")
    short, _, full = text.partition("### Full budget")
    assert "Made by `python -m experiments table1 --budget short`." in short
    assert "Made by `python -m experiments table1 --budget full`." in full
    assert "--budget full" not in short
    assert "18.10 %" in short
    assert "18.10 %" not in full
    assert "3.00 %" in full
    assert "3.00 %" in chapter(report(), "Table 2").partition("### Full budget")[2]  # the same run


def test_results_of_other_recipes_are_marked() -> None:
    put_result(SHORT, "smallnorb-frem", 0.1, recipe=recipe_json("smallnorb-frem", rate=0.5), picture=True)
    put_result(SHORT, "smallnorb-cnn", 0.1, recipe=recipe_json("smallnorb-cnn", iterations=9, checkpoint_every=7))
    put_result(SHORT, "cifar10-cnn", 0.12, seeds=[0, 1])
    put_result(SHORT, "ablation-em-2-0.1", 0.2, recipe=recipe_json("ablation-em-2-0.1", residual=False))
    text = report()
    of = {row[0]: row[-1] for row in rows(chapter(text, "Table 1"))[:5]}
    assert of["FREM"].endswith(
        f"; of another recipe: rate 0.5, now {recipe_json('smallnorb-frem')['optimisation']['rate']}"
    )
    assert "another" not in of["CNN"]  # which has no capsules
    assert "; of another recipe: seeds [0, 1], now [0] |" in chapter(text, "Table 3")
    assert "Of another recipe: smallNORB, FREM." in chapter(text, "Reconstructions")
    assert "Of another recipe: spread, EM." in chapter(text, "Losses")
    assert "cannot tell: of another recipe for EM with spread loss" in chapter(text, "Side claims")


def test_ensemble_of_former_runs_is_marked() -> None:
    folder = Path("experiments/results/full")
    names = [f"cifar10-em-seed{seed}" for seed in range(5)]
    for seed, name in enumerate(names):
        put_result(folder, name, 0.2, seed=seed, started="then")
    members = {name: {"test_error": 0.2, "started": "then"} for name in names}
    put_result(folder, "cifar10-em", 0.12, seeds=[0, 1, 2, 3, 4], members=members)
    assert "ran again" not in report()
    put_result(folder, names[3], 0.2, seed=3, started="now")
    assert "; from before cifar10-em-seed3 ran again |" in chapter(report(), "Table 3")


def test_epoch_of_a_failure() -> None:
    put_result(SHORT, "smallnorb-frem", None)
    put_result(SHORT, "smallnorb-em", None, curves={"columns": ["step", "epoch", "output_loss"], "rows": []})
    of = {row[0]: row[-1] for row in rows(chapter(report(), "Table 1"))[:5]}
    assert of["FREM"].startswith("hybrid64, failed at epoch 1 of 6, seed 0")
    assert of["EM"].startswith("hybrid64, failed at epoch 0 of 6, seed 0")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("short/mnist-em.json", '{"name": "mnist-em"}'),
        ("short/mnist-em.json", '{"name": "mnist-em", "recipe": 3, "test_error": 1, "failed": null}'),
        ("trials/a.json", "[]"),
        ("trials/a.json", "{"),
        ("short/times.json", "[]"),
        ("short/times.json", '{"name": "times"}'),
        ("short/times.json", '{"machine": {}, "batch": 3, "backends": [], "seconds": {"cnn/inference": []}}'),
    ],
)
def test_damaged_files(capsys: pytest.CaptureFixture[str], name: str, content: str) -> None:
    path = Path("experiments/results") / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
    err = complaint(capsys)
    assert f"{path} cannot be read: " in err
    assert "; restore the file, or remove it to make it again" in err


@pytest.mark.parametrize("key", ["recipe", "data", "epochs", "machine", "test_images", "seconds", "seed", "test_error"])
def test_incomplete_results(capsys: pytest.CaptureFixture[str], key: str) -> None:
    values = {name: value for name, value in result_values("mnist-em", 0.1).items() if name != key}
    write_result(SHORT / "mnist-em.json", values)
    assert f"mnist-em.json cannot be read: '{key}' is missing; restore the file" in complaint(capsys)


def test_notes_that_are_not_text(capsys: pytest.CaptureFixture[str]) -> None:
    Path("docs").mkdir()
    Path("docs/results-notes.md").write_bytes("Müll".encode("latin-1"))
    err = complaint(capsys)
    assert "docs/results-notes.md cannot be read: 'utf-8' codec" in err
    assert "save it as text in UTF-8" in err


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as exit_info:
        main(["--report", "--output", "docs"])
    assert exit_info.value.code == 2
    return capsys.readouterr().err


def test_pictures_of_former_results_are_removed() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181, picture=True)
    put_result(SHORT, "mnist-frem", 0.181, picture=True)
    report()
    Path("docs/images/bench.png").touch()
    (SHORT / "smallnorb-frem.json").unlink()
    report()
    assert sorted(path.name for path in Path("docs/images").iterdir()) == ["bench.png", "results-short-mnist-frem.png"]


def test_same_results_same_bytes() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181, picture=True)
    put_result(SHORT, "ablation-frem-2-0.1", 0.2)
    put_result(SHORT, "ablation-em-2-0.1-margin", 0.3)
    first = [main(["--report", "--output", name]) or files(Path(name)) for name in ("one", "two")]
    assert first[0] == first[1]
    assert set(first[0]) == {
        "results.md",
        "images/results-losses-short.png",
        "images/results-short-smallnorb-frem.png",
    }


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_links_in_the_notes_lead_to_headings() -> None:
    """Markdown viewers name headings after their text."""
    notes = "".join((REPOSITORY / f"docs/{name}").read_text() for name in (NOTES, TRIED_NOTES))
    Path("docs").mkdir()
    Path("docs/results-notes.md").write_text(notes)
    headings = re.findall(r"^## (.*)$", report(), re.MULTILINE)
    names = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", notes)) <= names


def test_page_is_well_formed() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181, picture=True)
    put_result(SHORT, "ablation-frem-2-0.1", 0.2)
    put_result(SHORT, "ablation-frem-2-0.1-margin", 0.2)
    Path("docs").mkdir()
    Path("docs/results-notes.md").write_text("We saw **much**.\n\n- `one`\n- two\n")
    text = report()
    assert chapter(text, "What we learned").strip().startswith("We saw **much**")
    assert "### Loss curves\n\n![Loss curves: Output loss, spread loss, " in text
    assert "### \n" not in text
    assert "![:" not in text
    for part in text.split("\n\n"):
        if part.startswith("| "):
            assert len({line.count("|") for line in part.splitlines()}) == 1, part


def test_new_objects_and_viewpoints() -> None:
    put_result(SHORT, "objects-frem-seed1", 0.03, crops_error=0.021)
    put_result(SHORT, "viewpoints-azimuth-cnn", 0.25, familiar_error=0.125)
    text = report()
    objects = {tuple(row[:3]): row[3:] for row in rows(chapter(text, "New objects"))}
    assert objects["FREM", "32x32", "1"][:3] == ["3.00 %", "2.10 %", "12.50 %"]
    assert objects["CNN", "48x48", "0"] == ["not run", *["\N{EN DASH}"] * 3]
    viewpoints = {tuple(row[:3]): row[3:] for row in rows(chapter(text, "New viewpoints"))}
    assert viewpoints["azimuth", "CNN", "0"][:2] == ["12.50 %", "25.00 %"]
    assert viewpoints["elevation", "FREM, poolcaps32", "1"][:2] == ["\N{EN DASH}", "not run"]


def test_means_over_the_seeds() -> None:
    for seed, error in enumerate((0.03, 0.02)):
        put_result(SHORT, f"objects-frem-seed{seed}", error, crops_error=0.02)
        put_result(SHORT, f"viewpoints-elevation-frem-one-iteration{f'-seed{seed}' * seed}", 4 * error)
    text = report()
    objects = {tuple(row[:3]): row[3:] for row in rows(chapter(text, "New objects"))}
    assert objects["FREM", "32x32", "mean"][:2] == ["2.50 % ± 0.50", "2.00 % ± 0.00"]
    assert ("CNN", "32x32", "mean") not in objects
    viewpoints = {tuple(row[:3]): row[3:] for row in rows(chapter(text, "New viewpoints"))}
    assert viewpoints["elevation", "one iteration, poolcaps32", "mean"][1] == "10.00 % ± 2.00"
    assert "results-viewpoints-short.png" in files(Path("docs/images"))


def test_other_iterations_than_in_training() -> None:
    put_result(SHORT, "iterations-frem", 0.1, iterations_error={"1": 0.7, "2": 0.1, "3": 0.125})
    found = chapter(report(), "Iterations in the test")
    table = {row[0]: row[1:] for row in rows(found)}
    assert table["FREM"][:4] == ["70.00 %", "10.00 %", "12.50 %", "not run"]
    assert table["EM"] == [*["not run"] * 4, "\N{EN DASH}"]
    assert "![Errors by iterations](images/results-iterations-short.png)" in found


def test_pictures_of_the_toys() -> None:
    about = {"trial": trial(), "validation_error": [[1, 0.2]], "training_error": [[1, 0.1]]}
    put_result(TRIED, "cnn-norm-6-epochs", None, held_out={"car 1": 0.2, "car 2": 0.0}, **about)
    put_result(TRIED, "cnn-norm-6-epochs-seed-1", None, held_out={"car 1": 0.4}, **about)
    put_result(TRIED, "head-6-epochs", None, held_out={"car 1": 0.5, "truck 1": 0.0}, **about)
    trials = read_results(TRIED)
    assert toys_of(runs_of("cnn-norm-6-epochs", trials)) == pytest.approx({"car 1": 0.3, "car 2": 0.0})
    text = report()
    assert "![Error by toy](images/results-toys.png)" in text
    assert files(Path("docs/images")).keys() >= {"results-toys.png", "results-learning.png"}


def test_new_objects_by_toy() -> None:
    put_result(
        SHORT, "objects48-cutmix-at-first-cnn-seed0", 0.03, held_out={"car 1": 0.0, "car 2": 0.1, "truck 1": 0.02}
    )
    put_result(
        SHORT, "objects48-cutmix-at-first-frem-seed0", 0.02, held_out={"car 1": 0.0, "car 2": 0.02, "truck 1": 0.02}
    )
    put_result(
        SHORT,
        "objects48-cutmix-at-first-frem-seed1",
        0.02,
        held_out={"car 1": 0.0, "car 2": 0.06, "truck 1": 0.02},
        seed=1,
    )
    put_result(
        SHORT,
        "objects48-cutmix-at-first-cnn-seed1",
        0.03,
        held_out={"car 1": 0.0, "car 2": 0.1, "truck 1": 0.02},
        seed=1,
    )
    # no pair, so not counted
    put_result(
        SHORT,
        "objects48-cutmix-at-first-frem-seed2",
        0.5,
        held_out={"car 1": 1.0, "car 2": 1.0, "truck 1": 1.0},
        seed=2,
    )
    found = chapter(report(), "New objects")
    assert "![Error by toy](images/results-test-toys-short.png)" in found
    assert "Nine tenths of the errors are on " in found
    assert "FREM minus CNN: -2.00 points" in found  # of cars and trucks, a toy counts as much as another
    assert re.search(r"between -6.00 and \+0.00 \(95 %, bootstrap over the 3 toys\)", found)
    assert "results-test-toys-short.png" in files(Path("docs/images"))


def test_pairs_of_new_objects() -> None:
    for seed, (frem, cnn) in enumerate([(0.02, 0.025), (0.03, 0.032), (0.01, 0.012), (0.04, None)]):
        put_result(SHORT, f"objects48-cutmix-at-first-frem-seed{seed}", frem)
        if cnn is not None:
            put_result(SHORT, f"objects48-cutmix-at-first-cnn-seed{seed}", cnn)
    put_result(SHORT, "objects-frem-seed0", 0.03)
    put_result(SHORT, "objects-cnn-seed0", 0.02)
    for method, error in {"frem": 0.007, "cnn": 0.009}.items():  # an ensemble is no seed
        put_result(SHORT, f"objects48-cutmix-at-first-{method}", error, seed=None, seeds=[2, 3, 4], members={})
    text = chapter(report(), "New objects")
    pairs = {row[1]: row[2:] for row in rows(text[text.index("### FREM minus the CNN") :])}
    # mean 0.3, standard deviation sqrt(0.03), and Student's t with two degrees of freedom 4.303
    found = [text.replace(MINUS, "-") for text in pairs["48x48, CutMix at first"]]
    assert found == ["-0.50, -0.20, -0.20", "-0.30", "-0.73 to +0.13"]
    assert pairs["32x32"] == ["+1.00", "+1.00", "\N{EN DASH}"]


def test_pairs_of_new_viewpoints() -> None:
    for name, error in {"frem": 0.2, "frem-one-iteration": 0.1, "cnn": 0.25, "head-cutmix": 0.125}.items():
        put_result(SHORT, f"viewpoints-azimuth-{name}-seed1", error)
    put_result(SHORT, "viewpoints-azimuth-cnn-cutmix", 0.25)  # of another seed
    put_result(SHORT, "viewpoints-elevation-head-cutmix", 0.25)
    put_result(SHORT, "viewpoints-elevation-cnn-cutmix", 0.375)
    text = chapter(report(), "New viewpoints")
    pairs = {tuple(row[:2]): row[2:] for row in rows(text[text.index("### FREM minus the CNN") :])[1:]}
    assert {labels: [found.replace(MINUS, "-") for found in row] for labels, row in pairs.items()} == {
        ("azimuth", "FREM, poolcaps32"): ["-5.00", "-5.00", "\N{EN DASH}"],
        ("elevation", "FREM, headcaps32, CutMix"): ["-12.50", "-12.50", "\N{EN DASH}"],
    }


def test_toys_with_most_of_the_errors() -> None:
    assert toys_with_most({"car 1": 0.05, "car 2": 0.5, "car 3": 0.4, "truck 1": 0.05}) == 2  # 0.9 of 1.0
    assert toys_with_most({"car 1": 0.06, "car 2": 0.5, "car 3": 0.4, "truck 1": 0.06}) == 3
    assert toys_with_most({"car 1": 0.0, "car 2": 0.0}) == 1


def test_interval_over_toys() -> None:
    assert interval_of_mean([1.0, 1.0, 1.0]) == (1.0, 1.0)
    values = [0.0, 1.0] * 50
    low, high = interval_of_mean(values)  # of a mean of 100 values with a standard deviation of 0.5
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.01)


def trial(**changes: Any) -> dict[str, Any]:
    return {"group": "weights", "base": "smallnorb-frem-small", "changes": {"rate": 0.002}, "asks": "why?", **changes}


def test_trials_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [("start", "plain"), ("decoder", "without"), ("weights", "decay")]
    trials = [Trial(group=group, name=name, base="smallnorb-frem-small") for group, name in listed]
    monkeypatch.setattr("experiments.trial_tables.TRIALS", trials)
    folder = Path("experiments/results/trials")
    put_result(folder, "decay", None, failed=None, trial=trial())
    put_result(folder, "plain", None, failed=None, trial=trial(group="start", changes={}))
    put_result(folder, "without", None, trial=trial(group="decoder"), validation_error=[], training_error=[])
    put_result(folder, "a-former-one", None, failed=None, trial=trial(group="gone"))
    table = rows(chapter(report(), "What was tried"))[1:]
    assert [row[1] for row in table] == ["plain", "without", "decay", "a-former-one"]
    assert table[1][4:8] == ["\N{EN DASH}", "\N{EN DASH}", "failed: not finite", "failed at epoch 1 of 6"]
    assert table[2][3:] == ["why?", "12.50 %", "30.00 %", "40.00 %", "6", "1 min 15 s"]


def test_folds_of_a_trial_share_a_row() -> None:
    folder = Path("experiments/results/trials")
    for fold, (car, truck, error) in {0: (0.5, 0.0, 0.25), 2: (0.1, 0.02, 0.06), 4: (0.3, 0.01, 0.155)}.items():
        put_result(
            folder,
            "full" if fold == 0 else f"full-fold-{fold}",
            None,
            failed=None,
            trial=trial(),
            recipe=recipe_json("frem", fold=fold),
            validation_error=[[1.0, 0.9], [2.0, error]],
            held_out={f"car {4 + fold}": car, f"truck {8 - fold}": truck},
        )
    put_result(folder, "former", None, failed=None, trial=trial())  # from before toys were told apart
    text = chapter(report(), "What was tried")
    heads, row = rows(text)[0], next(row for row in rows(text) if row[0] == "full")
    none = "\N{EN DASH}"
    assert heads == ["trial", *(f"fold {k}" for k in range(5)), "mean", "mean of 0, 2, 4", "car", "truck"]
    assert row == ["full", "25.0", none, "6.0", none, "15.5", none, "15.5", "30.0", "1.0"]
    assert "former" not in [row[0] for row in rows(text)]  # in the other table it is the second


def test_trials_say_what_was_run_whatever_the_list_says_now() -> None:
    folder, same = Path("experiments/results/trials"), {"failed": None, "trial": trial(group="start")}
    cnn = {"model": "cnn32", "loss": "cross-entropy", "rate": 0.002, "iterations": 1, "checkpoint_every": 7}
    put_result(folder, "frem", None, recipe=recipe_json("frem", transform_std=0.3, rate=0.006), **same)
    put_result(folder, "cnn", None, recipe=recipe_json("frem", **cnn), **same)
    recipe = recipe_json("frem", rate=0.006, transform_std=2.0, seed=1)
    recipe["network"]["old"] = 3
    put_result(folder, "other", None, recipe=recipe, **same)
    text = chapter(report(), "What was tried")
    assert [row[2] for row in rows(text)[1:]] == [
        "nothing",
        "model cnn32, loss cross-entropy, rate 0.002",
        "transform_std 2.0, seed 1, old 3",
    ]
    assert "against frem, which has data smallnorb, " in text
    assert "routing frem, iterations 2, transform_std 0.3, routing_options none, " in text
    assert "checkpoint_every" not in text


def test_times_as_ratios() -> None:
    put_result(SHORT, "smallnorb-frem", 0.181)
    seconds = {f"native/{method}/{mode}": [0.4, 0.5] for method in ("frms", "frem", "em") for mode in MODES}
    seconds |= {f"cnn/{mode}": [0.2, 0.2] for mode in MODES} | {f"{PLAIN}/frem/{mode}": [0.6, 0.6] for mode in MODES}
    machine = dict.fromkeys(("cpu", "vector_path", "torch", "torchcaps", "python", "date"), "x")
    machine |= {"cores": 2, "threads": 1}
    values = {"name": "times", "machine": machine, "batch": 50, "backends": ["native"], "seconds": seconds}
    write_result(SHORT / "times.json", values)
    text = chapter(report(), "Table 1")
    table = rows(text)
    assert "with PyTorch's in both, FREM takes 3.00 (3.00 to 3.00, 2 rounds) of the CNN's time" in text
    assert ["FREM", "3.7", "2.25 (2.12 to 2.38, 2 rounds)", "450 (400)"] in [row[:4] for row in table]
    assert ["CNN", "1.0", "1", "200 (200)"] in [row[:4] for row in table]
    assert "times" not in read_results(SHORT)
