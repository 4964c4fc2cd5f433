"""Training on familiar viewpoints; tested on novel ones, and on familiar ones apart."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from torchcaps.classifier import load
from torchcaps.cli import main
from torchcaps.cli.train import report_on
from torchcaps.data import DataError, ImageSet, Split, ViewpointSplits
from torchcaps.errors import UserError
from torchcaps.train import Recipe, train
from torchcaps.train.assemble import load_data
from torchcaps.train.command_line import command_line
from torchcaps.train.recipes import recipe as named_recipe

FAMILIAR = {"azimuth": [0, 2, 4, 30, 32, 34], "elevation": [0, 1, 2]}


def pairs(instances: tuple[int, ...], seed: int) -> Split:
    """Stereo pairs of noise, of one class or the other: twice the instances, four elevations, 18 azimuths."""
    rows = torch.tensor(list(product(range(2), instances, range(4), range(0, 36, 2))))  # [N, 4]
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (len(rows), 2, 24, 24), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 2, (len(rows),), generator=generator)
    return Split(images, labels, {"instance": rows[:, 1], "elevation": rows[:, 2], "azimuth": rows[:, 3]})


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ImageSet:
    """What every set by name is, and a working folder of its own."""
    found = ImageSet("turntable", ("a", "b"), pairs((4, 6), 0), pairs((0, 1), 1))
    monkeypatch.setattr("torchcaps.train.assemble.load", lambda name, **options: found)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.of(
        data="turntable",
        full=True,
        camera="both",
        viewpoint="azimuth",
        model="cnn32",
        size=16,
        first_channels=16,
        loss="cross-entropy",
        epochs=1,
        batch_size=16,
    )


@pytest.mark.parametrize("factor", ["azimuth", "elevation"])
def test_errors_on_novel_and_familiar_viewpoints(
    data: ImageSet, recipe: Recipe, factor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = train(recipe.with_fields(viewpoint=factor), output=Path("run"))  # type: ignore[arg-type]
    assert finished is not None
    network = load("run")
    wrong = network.predict(data.test.images).label != data.test.labels
    familiar = torch.isin(data.test.factor(factor), torch.tensor(FAMILIAR[factor]))
    expected = {True: wrong[familiar].double().mean().item(), False: wrong[~familiar].double().mean().item()}
    result = json.loads(Path("run/result.json").read_text())
    assert result["familiar_error"] == pytest.approx(expected[True])
    assert result["test_error"] == pytest.approx(expected[False])
    assert expected[True] != expected[False]  # or this test shows little
    assert network.card["result"] == result
    about = json.loads(Path("run/run.json").read_text())["data"]
    assert (about["test"], about["familiar"]) == (int((~familiar).sum()), int(familiar.sum()))
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == f"test error: {100 * expected[False]:.2f} %"
    assert shown[-2] == f"error on familiar {factor}s: {100 * expected[True]:.2f} %"
    report_on(finished)
    capsys.readouterr()
    assert "error on familiar viewpoints" in Path("run/report.html").read_text()

    main(["eval", "run", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["familiar_error"] == pytest.approx(expected[True])
    assert found["error"] == pytest.approx(expected[False])
    main(["eval", "run"])
    assert f"error on familiar viewpoints: {100 * expected[True]:.2f} %" in capsys.readouterr().out
    main(["eval", "run", "--split", "validation", "--json"])
    assert json.loads(capsys.readouterr().out)["familiar_error"] is None


def test_without_a_viewpoint_there_is_no_such_error(
    data: ImageSet, recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    train(recipe.with_fields(viewpoint=None), output=Path("all"))
    assert json.loads(Path("all/result.json").read_text())["familiar_error"] is None
    assert "familiar" not in capsys.readouterr().out
    train(recipe, output=Path("some"))
    with pytest.raises(SystemExit):
        main(["eval", "all", "some"])
    assert "differ in their viewpoint, None and azimuth" in capsys.readouterr().err


def test_training_alone_leaves_the_test_images_alone(data: ImageSet, recipe: Recipe) -> None:
    finished = train(recipe, output=Path("run"), test=False)
    assert finished is not None
    assert finished.evaluation is finished.familiar is None
    assert '"familiar_error": null' in Path("run/result.json").read_text()


def test_cameras_and_fewer_images(data: ImageSet, recipe: Recipe) -> None:
    splits = load_data(recipe.with_fields(camera="each", images=20))
    assert isinstance(splits, ViewpointSplits)
    assert splits.validation is not None
    for split in (splits.train, splits.validation, splits.test, splits.familiar):
        assert split.images.shape == (20, 1, 24, 24)
    assert set(splits.train.factor("azimuth").tolist()) <= set(FAMILIAR["azimuth"])
    assert set(splits.familiar.factor("azimuth").tolist()) <= set(FAMILIAR["azimuth"])
    assert not set(splits.test.factor("azimuth").tolist()) & set(FAMILIAR["azimuth"])


def test_viewpoints_that_are_not_known(data: ImageSet, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {name: torch.full_like(values, -1) for name, values in data.train.factors.items()}
    broken = replace(data, train=replace(data.train, factors=unknown))
    monkeypatch.setattr("torchcaps.train.assemble.load", lambda name, **options: broken)
    with pytest.raises(DataError, match=r"azimuth of 288 of 288 images is not known: .*info file, which is missing"):
        train(recipe.with_fields(data="smallnorb", full=False), output=Path("run"))
    assert not Path("run").exists()


def test_what_cannot_be_meant() -> None:
    with pytest.raises(UserError, match="viewpoint is for smallnorb and turntable, not for mnist"):
        Recipe.of(data="mnist", viewpoint="azimuth")
    with pytest.raises(UserError, match="viewpoint is 'lighting', expected azimuth or elevation"):
        Recipe.of(data="turntable", viewpoint="lighting")  # type: ignore[arg-type]


def test_what_to_type() -> None:
    found = named_recipe("turntable-frem", viewpoint="elevation", full=True, camera="both")
    expected = "torchcaps train turntable-frem --full --viewpoint elevation"
    assert command_line(found) == expected
