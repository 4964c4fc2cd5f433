"""Skip what is done, go on with what was interrupted, and never mix recipes."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments import queue
from experiments.cells import Ensemble, Job, Run
from experiments.queue import OtherRecipeError, run_jobs
from experiments.results import Places, read_results
from experiments.states import state_of
from experiments.tables import trained_as
from experiments.trials import Trial
from fake_results import Trainings
from torchcaps.data import DataError
from torchcaps.errors import UserError
from torchcaps.runs.folder import RunFolderError, locked
from torchcaps.train.checkpoints import Interrupted
from torchcaps.train.loop import Resources

Make = Any


def shown(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_order_and_skipping(make_run: Make, places: Places, console: Console, trainings: Trainings) -> None:
    jobs = [make_run(name) for name in ("c", "a", "b")]
    run_jobs(jobs[1:2], places, console)
    run_jobs(jobs, places, console)
    assert trainings.calls == [("a", "new"), ("c", "new"), ("b", "new")]
    assert "a: done: 25.00" in shown(console)
    assert "[2/2] short/b" in shown(console)


def test_precision_is_recorded(make_run: Make, places: Places, console: Console, trainings: Trainings) -> None:
    run_jobs([make_run("a")], places, console, precision="bf16")
    run_jobs([make_run("b")], places, console)
    found = read_results(places.results / "short")
    assert [found[name].precision for name in "ab"] == ["bf16", "32"]
    assert [trained_as(found[name]).endswith(", bf16") for name in "ab"] == [True, False]


def test_result(make_run: Make, places: Places, console: Console, trainings: Trainings) -> None:
    run_jobs([make_run("a", root=Path("/somewhere"), seed=3)], places, console)
    values = json.loads(Path("experiments/results/short/a.json").read_text())
    assert (values["name"], values["seed"], values["test_error"], values["test_images"]) == ("a", 3, 0.25, 100)
    assert (values["recipe"]["network"]["model"], values["epochs"], values["steps"]) == ("cnn32", 50, 10)
    assert values["recipe"]["data"]["root"] is None
    assert "somewhere" not in Path("experiments/results/short/a.json").read_text()
    assert values["data"] == {
        "title": "turntable",
        "set": "turntable",
        "note": "some",
        "train": 2,
        "validation": 0,
        "test": 2,
    }
    assert values["curves"]["rows"] == [[10.0, 1.5, 0.5, 0.5]]
    assert {"machine", "threads", "versions", "seconds", "images_per_second"} <= values.keys()


def test_interrupted_run_is_gone_on_with(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    jobs = [make_run(name) for name in ("a", "b", "c")]
    trainings.stops_at = "b"
    with pytest.raises(Interrupted):
        run_jobs(jobs, places, console)
    assert [state_of(job, places).words for job in jobs] == [
        "done: 25.00\N{NO-BREAK SPACE}%",
        "interrupted at epoch 1.5",
        "not run",
    ]
    trainings.stops_at = None
    run_jobs(jobs, places, console)
    assert trainings.calls == [("a", "new"), ("b", "new"), ("b", "resumed"), ("c", "new")]


def test_finished_run_without_a_result_is_not_trained_again(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    run = make_run("a")
    run_jobs([run], places, console)
    before = Path("experiments/results/short/a.json").read_bytes()
    Path("experiments/results/short/a.json").unlink()
    assert state_of(run, places).kind == "finished"
    run_jobs([run], places, console)
    assert trainings.names == ["a"]
    assert Path("experiments/results/short/a.json").read_bytes() == before


@pytest.mark.parametrize("left", ["result", "finished", "interrupted"])
def test_another_recipe(make_run: Make, places: Places, console: Console, trainings: Trainings, left: str) -> None:
    trainings.stops_at = "a" if left == "interrupted" else None
    with pytest.raises(Interrupted) if left == "interrupted" else nullcontext():
        run_jobs([make_run("a")], places, console)
    trainings.stops_at = None
    if left == "finished":
        Path("experiments/results/short/a.json").unlink()
    changed = [make_run("new"), make_run("a", epochs=6, rate=2e-3)]
    with pytest.raises(OtherRecipeError) as caught:
        run_jobs(changed, places, console)
    message = str(caught.value)
    assert ("experiments/results/short/a.json" if left == "result" else "runs/short/a") in message
    assert "epochs 50, now 6; rate 0.001, now 0.002" in message
    assert "--again" in message
    assert trainings.names == ["a"]  # and nothing else was started
    run_jobs(changed, places, console, again=True)
    assert trainings.calls[1:] == [("new", "new"), ("a", "new")]
    assert json.loads(Path("experiments/results/short/a.json").read_text())["epochs"] == 6
    run_jobs(changed, places, console, again=True)  # of the same recipe now
    assert len(trainings.calls) == 3


def test_fields_that_a_network_does_not_have(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    run_jobs([make_run("a")], places, console)
    capsules = {"routing": "em", "iterations": 3, "transform_std": 2.0, "routing_options": {"final_lambda": 2.0}}
    capsules |= {"residual": False, "class_shared": True, "class_coordinates": True, "reconstruction": 0.1}
    run = make_run("a", checkpoint_every=7, routing_rate=4.0, **capsules)
    assert state_of(run, places).differs == ()
    other = make_run("a", model="hybrid32", loss="spread", **capsules)
    assert {text.split()[0] for text in state_of(other, places).differs} == {"model", "loss", *capsules}


def test_what_another_process_did_meanwhile(
    make_run: Make, places: Places, console: Console, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, theirs = queue.run_job, [make_run("b"), make_run("c", rate=0.5)]

    def with_another(job: Job, *arguments: Any) -> None:
        original(job, *arguments)
        while theirs:  # while the first one is run here
            original(theirs.pop(), *arguments)

    monkeypatch.setattr(queue, "run_job", with_another)
    with pytest.raises(OtherRecipeError, match=r"c\.json: rate 0\.5, now 0\.001"):
        run_jobs([make_run(name) for name in ("a", "b", "c", "d")], places, console)
    assert trainings.names == ["a", "c", "b"]
    assert "[2/4] short/b\nmeanwhile done: 25.00" in shown(console)


def test_what_another_process_is_at(make_run: Make, places: Places, console: Console, trainings: Trainings) -> None:
    ensemble = ensemble_of(make_run)
    jobs = [make_run("a"), *ensemble.members, ensemble, make_run("b")]
    folder = places.folder(ensemble.members[0])
    folder.mkdir(parents=True)
    with locked(folder):
        run_jobs(jobs, places, console)
        assert trainings.names == ["a", "e-seed1", "b"]
        assert "skipped, as other processes are running them: e-seed0, e; run this again" in shown(console)
    assert state_of(ensemble, places).kind != "done"


def test_folder_in_which_another_process_trains_is_kept(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    run_jobs([make_run("a")], places, console)
    before = sorted(Path("runs/short/a").rglob("*"))
    with locked(Path("runs/short/a")), pytest.raises(RunFolderError, match="another process is training in runs/"):
        run_jobs([make_run("a", rate=0.5)], places, console, again=True)
    assert set(before) <= set(Path("runs/short/a").rglob("*"))
    assert Path("experiments/results/short/a.json").is_file()
    Path("runs/short/a/checkpoints").mkdir()
    Path("runs/short/a/checkpoints/last.ckpt").touch()
    run_jobs([make_run("a", rate=0.5)], places, console, again=True)
    assert not Path("runs/short/a/checkpoints").exists()


def ensemble_of(make_run: Make) -> Ensemble:
    members = tuple(make_run(f"e-seed{seed}", seed=seed) for seed in (0, 1))
    return Ensemble(place="short", name="e", members=members)


@pytest.mark.parametrize("change", [{"test_error": 0.5}, {"started": "later"}])
def test_ensemble_of_former_runs(
    make_run: Make, places: Places, console: Console, trainings: Trainings, change: dict[str, Any]
) -> None:
    trainings.diverges = "e-seed0"  # then there is nothing to evaluate
    ensemble = ensemble_of(make_run)
    jobs = [*ensemble.members, ensemble]
    run_jobs(jobs, places, console)
    assert state_of(ensemble, places).kind == "done"
    path = Path("experiments/results/short/e-seed1.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert state_of(ensemble, places).words == "not evaluated since e-seed1 ran again"
    run_jobs(jobs, places, console)
    assert state_of(ensemble, places).kind == "done"
    assert (
        json.loads(Path("experiments/results/short/e.json").read_text())["members"]["e-seed1"].items() >= change.items()
    )


def test_result_from_before_a_field_was_there(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    run = make_run("a")
    run_jobs([run], places, console)
    path = Path("experiments/results/short/a.json")
    values = json.loads(path.read_text())
    del values["recipe"]["data"]["images"]
    path.write_text(json.dumps(values))
    assert state_of(run, places).differs == ()
    assert state_of(replace(run, recipe=run.recipe.with_fields(images=60)), places).differs == ("images None, now 60",)


def test_other_place_of_the_data_is_the_same_recipe(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    run_jobs([make_run("a", root=Path("here"))], places, console)
    run_jobs([make_run("a", root=Path("there"))], places, console)
    assert trainings.names == ["a"]


def test_training_that_diverges_is_a_result(
    make_run: Make, places: Places, console: Console, trainings: Trainings
) -> None:
    trainings.diverges = "a"
    jobs = [make_run("a"), make_run("b")]
    run_jobs(jobs, places, console)
    values = json.loads(Path("experiments/results/short/a.json").read_text())
    assert values["test_error"] is None
    assert "nan at step 10" in values["failed"]
    assert values["steps"] == 10
    assert state_of(jobs[0], places).words == "done: training failed"
    run_jobs(jobs, places, console)
    assert trainings.names == ["a", "b"]


def test_result_is_whole_or_absent(
    make_run: Make, places: Places, console: Console, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object) -> None:
        raise OSError(28, "No space left on device")

    trainings(make_run("a").recipe, output=Path("runs/short/a"), resume=None, resources=Resources(), console=console)
    monkeypatch.setattr("torchcaps.data.writing.to_disk", full)
    with pytest.raises(DataError, match=r"a\.json cannot be written: No space left"):
        run_jobs([make_run("a")], places, console)
    assert list(Path("experiments/results/short").iterdir()) == []


def test_missing_data_is_said_before_anything_is_trained(
    make_run: Make, places: Places, console: Console, trainings: Trainings, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="CIFAR-10 is in none of these"):
        run_jobs([make_run("a"), make_run("b", data="cifar10", root=tmp_path)], places, console)
    assert trainings.calls == []


def trial_run(**changes: Any) -> Run:
    trial = Trial(group="g", name="t", base="turntable-cnn-quick", changes=changes, asks="why?")
    return Run(place="trials", name="t", recipe=trial.recipe.with_fields(name="t"), trial=trial)


def test_trial_leaves_the_test_split_alone(places: Places, console: Console, trainings: Trainings) -> None:
    run_jobs([trial_run(rate=1e-3)], places, console)
    assert trainings.tested == [False]
    values = json.loads(Path("experiments/results/trials/t.json").read_text())
    assert values["test_error"] is None
    assert values["failed"] is None
    assert values["trial"] == {"group": "g", "base": "turntable-cnn-quick", "changes": {"rate": 1e-3}, "asks": "why?"}


def test_trials_of_former_recipes_stay(places: Places, console: Console, trainings: Trainings) -> None:
    run_jobs([trial_run()], places, console)
    run_jobs([trial_run(rate=1e-3)], places, console)
    assert len(trainings.calls) == 1
    assert "its recipe has changed since; --again runs it again" in shown(console)
    run_jobs([trial_run(rate=1e-3)], places, console, again=True)
    assert len(trainings.calls) == 2


def test_damaged_result(make_run: Make, places: Places, console: Console, trainings: Trainings) -> None:
    Path("experiments/results/short").mkdir(parents=True)
    for content in ("{", "[]", "{}", '{"name": "a"}'):
        Path("experiments/results/short/a.json").write_text(content)
        with pytest.raises(UserError, match=r"a\.json .*remove it to make it again"):
            run_jobs([make_run("a")], places, console)
    assert trainings.calls == []
