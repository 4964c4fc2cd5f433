"""The paper's numbers, and which runs fill its tables."""

import re
from collections import Counter
from pathlib import Path

import pytest

from data_files import idx_contents, put
from experiments import paper
from experiments.budgets import BUDGETS
from experiments.cells import TARGETS, Ensemble, Experiments, Run, Times
from experiments.command import chosen
from experiments.trials import TRIALS
from torchcaps.errors import OptionError
from torchcaps.train.recipes import recipe

# As the paper prints them.
TABLE1 = """
frms 0.158 0.001 0.470 0.002 2.6
frem 0.158 0.003 0.471 0.002 2.2
em   0.252 0.003 0.744 0.003 2.3
cnn  0.043 0.003 0.064 0.001 11.3
"""
TABLE2 = """
frms 1 0.1 76.9
frms 2 0.01 5.9
frms 2 0.1 2.6
frms 2 1.0 2.7
frms 3 0.1 7.1
frem 1 0.1 77.8
frem 2 0.01 5.6
frem 2 0.1 2.2
frem 2 1.0 2.3
frem 3 0.1 6.0
em 1 0.1 70.2
em 2 0.01 6.2
em 2 0.1 2.3
em 2 1.0 2.3
em 3 0.1 5.8
"""
TABLE3 = """
frms 0.42 6.0 15.6
frem 0.38 6.2 14.3
em 0.32 5.8 11.6
cnn 0.65 7.6 19.2
"""
EVERY = pytest.mark.parametrize("budget", ["quick", "short", "long", "full"])


def lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def share(percent: str) -> float:
    return pytest.approx(float(percent) / 100)


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist", "cifar10"])
def test_the_default_recipes_are_what_long_runs_had(data: str) -> None:
    for method in ("frem", "frms", "em"):
        assert recipe(f"{data}-{method}").with_fields(name="x") == BUDGETS["long"].main(data, method).with_fields(
            name="x"
        )


def test_table_1() -> None:
    assert len(paper.TABLE1) == 4
    for method, inference, inference_std, training, training_std, error in lines(TABLE1):
        row = paper.TABLE1[method]
        assert row.inference == (float(inference), float(inference_std))
        assert row.training == (float(training), float(training_std))
        assert row.error == share(error)


def test_table_2() -> None:
    assert sum(map(len, paper.TABLE2.values())) == 15
    for method, iterations, std, error in lines(TABLE2):
        assert paper.TABLE2[method][int(iterations), float(std)] == share(error)


def test_table_3() -> None:
    assert sum(map(len, paper.TABLE3.values())) == 12
    for method, *errors in lines(TABLE3):
        for data, error in zip(("mnist", "fashion-mnist", "cifar10"), errors, strict=True):
            assert paper.TABLE3[data][method] == share(error)


@EVERY
def test_tables_have_all_cells(budget: str) -> None:
    runs = Experiments(BUDGETS[budget])
    counts = {target: len(runs.cells(target)) for target in TARGETS}
    assert counts == {
        "table1": 4 + (4 if budget == "long" else 2),
        "table2": 15 + (6 if budget == "long" else 0),
        "table3": 12,
        "losses": 6,
        "reconstructions": 11 if budget == "long" else 12,  # its FREM on smallNORB has no decoder
        "claims": 15 + (6 if budget == "long" else 0) + 6 + 2,
        "iterations": 3,
        "objects": 4 if budget == "long" else 24,
        "viewpoints": 0 if budget == "long" else 40,
        "trials": 0,
        "all": 0,
    }
    for target in ("table1", "table2", "table3"):
        ours = ("-deformed", "-seed1")
        assert all((cell.paper is None) == cell.job.name.endswith(ours) for cell in runs.cells(target))


@EVERY
def test_no_run_is_done_twice(budget: str) -> None:
    jobs = Experiments(BUDGETS[budget]).jobs("all")
    assert max(Counter((job.place, job.name) for job in jobs).values()) == 1
    recipes = [job.recipe.with_fields(name="") for job in jobs if isinstance(job, Run) and job.trial is None]
    assert all(recipes.count(recipe) == 1 for recipe in recipes) or budget == "quick"  # stand-ins are alike


@pytest.mark.parametrize(
    ("budget", "runs"),
    [
        ("short", 6 + 15 + 12 + 3 + 2 + 3 + 22 + 40),
        ("long", 8 + 15 + 6 + 12 + 3 + 2),
        ("full", 6 + 12 + 8 + 20 + 3 + 2 + 3 + 22 + 40),
    ],
)
def test_number_of_runs(budget: str, runs: int) -> None:
    jobs = Experiments(BUDGETS[budget]).jobs("all")
    assert sum(isinstance(job, Run) and job.trial is None for job in jobs) == runs
    assert sum(isinstance(job, Ensemble) for job in jobs) == {"short": 2, "long": 0, "full": 4 + 2}[budget]
    assert sum(isinstance(job, Times) for job in jobs) == 1
    assert sum(isinstance(job, Run) and job.trial is not None for job in jobs) == len(TRIALS)


def test_full_table_2_shares_the_runs_of_table_1() -> None:
    runs = Experiments(BUDGETS["full"])
    table1, table2 = ({job.name for job in runs.jobs(target)} for target in ("table1", "table2"))
    assert table1 & table2 == {"smallnorb-frms", "smallnorb-frem", "smallnorb-em"}
    losses = [cell.job.name for cell in runs.cells("losses")]
    assert losses[:3] == ["smallnorb-frms", "smallnorb-frem", "smallnorb-em"]


def test_losses_and_table_2_share_runs_in_a_short_budget() -> None:
    runs = Experiments(BUDGETS["short"])
    shared = {job.name for job in runs.jobs("losses")} & {job.name for job in runs.jobs("table2")}
    assert shared == {"ablation-frms-2-0.1", "ablation-frem-2-0.1", "ablation-em-2-0.1"}
    assert not {job.name for job in runs.jobs("table1")} & {job.name for job in runs.jobs("table2")}


def test_cells_are_what_they_say() -> None:
    runs = Experiments(BUDGETS["short"])
    for cell in runs.cells("table2"):
        method, iterations, std = cell.labels
        recipe = cell.job.recipe
        assert (recipe.network.routing, recipe.network.iterations, recipe.network.transform_std) == (
            method.lower(),
            int(iterations),
            float(std),
        )
        assert (recipe.data.data, recipe.network.model, recipe.images.size, recipe.images.resize) == (
            "smallnorb",
            "hybrid32",
            32,
            48,
        )
    for cell in runs.cells("losses"):
        assert cell.job.recipe.optimisation.loss == cell.labels[0]
    for cell in runs.cells("table1"):
        assert cell.job.recipe.network.model in ("hybrid64", "cnn64")
    for method in ("frem", "cnn"):
        main, deformed = runs.main("smallnorb", method).recipe, runs.deformed(method).recipe
        assert deformed == main.with_fields(name=deformed.name, stretch=0.2, turn=10.0)
    assert runs.stacked_variant().recipe.network.routing == "frms_variant"
    assert not runs.without_residual().recipe.network.residual


@EVERY
def test_runs_train_on_everything_but_trials_hold_some_back(budget: str) -> None:
    for job in Experiments(BUDGETS[budget]).jobs("all"):
        if isinstance(job, Run):
            assert (job.recipe.data.validation == "none") == (job.trial is None)
            assert job.recipe.name == job.name


def test_ensemble_comes_behind_its_members() -> None:
    jobs = Experiments(BUDGETS["full"]).jobs("table3")
    [ensemble] = [job for job in jobs if job.name == "cifar10-frem"]
    assert isinstance(ensemble, Ensemble)
    assert [run.recipe.optimisation.seed for run in ensemble.members] == [0, 1, 2, 3, 4]
    first, *others = [run.recipe.with_fields(name="", seed=0) for run in ensemble.members]
    assert all(other == first for other in others)
    place = jobs.index(ensemble)
    assert jobs[place - 5 : place] == list(ensemble.members)


def test_root_reaches_the_runs() -> None:
    jobs = Experiments(BUDGETS["short"], Path("there")).jobs("all")
    for job in jobs:
        if isinstance(job, Run):
            assert job.recipe.data.root == (None if job.recipe.data.data == "turntable" else Path("there"))


def test_rehearsal_takes_a_set_that_is_at_hand(tmp_path: Path) -> None:
    put(tmp_path / "mnist", idx_contents())
    runs = Experiments(BUDGETS["quick"], tmp_path)
    recipes = {cell.job.name: cell.job.recipe for target in ("table1", "table3") for cell in runs.cells(target)}
    assert (recipes["mnist-frem"].data.data, recipes["mnist-frem"].data.root) == ("mnist", tmp_path)
    for name in ("smallnorb-frem", "fashion-mnist-em", "cifar10-cnn"):
        assert (recipes[name].data.data, recipes[name].data.root) == ("turntable", None)
    assert all(recipe.data.images == 16 and recipe.optimisation.epochs == 1 for recipe in recipes.values())


def test_beyond_the_paper_capsules_and_cnn_differ_in_nothing_else() -> None:
    found = Experiments(BUDGETS["short"])
    runs = {cell.job.name: cell.job for target in ("objects", "viewpoints") for cell in found.cells(target)}
    assert runs["objects-cnn-seed1"].recipe.optimisation.seed == 1
    assert runs["viewpoints-azimuth-frem-seed1"].recipe.optimisation.seed == 1
    tested = {name for name, run in runs.items() if isinstance(run, Run) and run.crops > 1}
    assert tested == {name for name in runs if name.startswith("objects") and name.endswith(("seed0", "seed1"))}
    together = runs["objects48-cutmix-at-first-frem"]
    assert isinstance(together, Ensemble)
    assert [run.recipe.optimisation.seed for run in together.members] == [2, 3, 4]
    assert all(run in runs.values() for run in together.members)
    for name, run in runs.items():
        twin = runs[re.sub("(frem|head)(-one-iteration)?", "cnn", name)].recipe
        same = {"name": "", "model": twin.network.model, "transform_std": 0.0, "iterations": 2}
        assert run.recipe.network.model[-2:] == twin.network.model[-2:]
        assert run.recipe.network.iterations == (1 if "one-iteration" in name else 2)
        assert run.recipe.with_fields(**same) == twin.with_fields(**same)
    azimuth = runs["viewpoints-azimuth-frem"].recipe
    assert azimuth.optimisation.epochs == 12
    assert (azimuth.data.data, azimuth.data.full, azimuth.data.viewpoint) == ("turntable", True, "azimuth")


def test_at_length_new_objects_are_those_of_table_1() -> None:
    found = Experiments(BUDGETS["long"])
    table = [cell.job for cell in found.cells("table1")]
    objects = [cell.job for cell in found.cells("objects")]
    assert [job.name for job in objects] == [f"smallnorb-{m}{s}" for m in ("frem", "cnn") for s in ("", "-seed1")]
    assert all(job in table and job.by_object for job in objects)
    frem, other, cnn, _ = (job.recipe for job in objects)
    assert frem.with_fields(name=other.name, seed=1) == other
    assert frem.with_fields(name=cnn.name, model="cnn32", transform_std=cnn.network.transform_std) == cnn


@EVERY
def test_runs_that_are_tested_with_other_iterations(budget: str) -> None:
    cells = Experiments(BUDGETS[budget]).cells("iterations")
    assert [cell.job.iterations for cell in cells] == [(1, 2, 3, 5)] * 3
    tested = [job for job in Experiments(BUDGETS[budget]).jobs("all") if isinstance(job, Run) and job.iterations]
    assert [job.name for job in tested] == [cell.job.name for cell in cells]


def test_rehearsed_trials_stay_apart() -> None:
    rehearsed = Experiments(BUDGETS["quick"]).jobs("trials")
    for job in rehearsed:
        assert (job.place, job.name[:6]) == ("quick", "trial-")
    names = {job.name.removeprefix("trial-") for job in rehearsed}
    assert names == {trial.name for trial in TRIALS if trial.recipe.data.fold == 0}  # the other folds would be no news
    assert {job.place for job in Experiments(BUDGETS["short"]).jobs("trials")} == {"trials"}
    assert len({trial.name for trial in TRIALS}) == len(TRIALS)


def test_only() -> None:
    jobs = Experiments(BUDGETS["short"]).jobs("all")
    assert [job.name for job in chosen(jobs, ["mnist-frem"])] == ["mnist-frem"]
    assert [job.name for job in chosen(jobs, ["nist-frem"])] == ["mnist-frem", "fashion-mnist-frem"]
    full = Experiments(BUDGETS["full"]).jobs("table3")
    assert len(chosen(full, ["cifar10-frem"])) == 5 + 1
    assert [job.name for job in chosen(jobs, ["times", "variant"])] == ["times", "ablation-frms-2-0.1-variant"]
    assert chosen(jobs, None) == jobs
    with pytest.raises(OptionError, match=r"--only imagenet: no run has that in its name; there are smallnorb-frms, "):
        chosen(jobs, ["imagenet"])


def test_each_text_of_only_has_to_match() -> None:
    jobs = Experiments(BUDGETS["short"]).jobs("all")
    with pytest.raises(OptionError, match="--only imagenet mnits-frem: no run has that in its name"):
        chosen(jobs, ["mnist-frem", "imagenet", "variant", "mnits-frem"])
    for only in ([], [""], ["mnist-frem", " "]):
        with pytest.raises(OptionError, match="--only expects names or parts of names; there are smallnorb-frms, "):
            chosen(jobs, only)
