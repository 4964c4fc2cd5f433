from pathlib import Path

import pytest
import torch

from data_files import idx_contents, put
from experiments.tools.swap_heads import Swap, body_of, put_body, recipe_of, table
from torchcaps import create_model
from torchcaps.train.assemble import load_data, make_pipeline
from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import recipe


def tiny(kind: str, root: Path) -> Recipe:
    small = {"batch_size": 10, "epochs": 1, "first_channels": 16, "reconstruction": 0.0, "mixup": 0.2}
    return recipe(f"mnist-{kind}-quick", **small, root=root).with_fields(name=kind)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return put(tmp_path / "mnist", idx_contents(train=60, test=10))


def test_body_is_what_both_have_in_common() -> None:
    capsules, cnn = (create_model(name, num_classes=5, norm="batch") for name in ("headcaps32", "cnn32"))
    with torch.no_grad():
        for parameter in cnn.parameters():
            parameter.uniform_()
    put_body(cnn, capsules)
    for theirs, mine in zip(body_of(cnn), body_of(capsules), strict=True):
        assert all(torch.equal(value, mine.state_dict()[name]) for name, value in theirs.state_dict().items())
    assert len(body_of(cnn)) == 6  # three convolutions and their norms


def test_each_head_on_each_body(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swap = Swap(runs=tmp_path, precision="32", head_epochs=1)
    recipes = {"FREM": tiny("frem", root), "CNN": tiny("cnn", root)}
    found = {(body, head): [error] for body, head, error in swap.errors(recipes)}
    assert list(found) == [(body, head) for body in recipes for head in ("its own", *recipes)]
    assert all(0 <= error <= 1 for [error] in found.values())
    assert table(found, [0]).rows[0][:2] == ["FREM", "its own"]
    capsys.readouterr()
    again = {(body, head): [error] for body, head, error in swap.errors(recipes)}  # of the same bodies
    assert again == found
    assert "epoch" not in capsys.readouterr().err


def test_only_the_head_is_trained(tmp_path: Path, root: Path) -> None:
    swap = Swap(runs=tmp_path, precision="32", head_epochs=1)
    settings = tiny("frem", root)
    trained = swap.body(settings)
    before = {name: value.clone() for name, value in trained.network.state_dict().items()}
    splits = load_data(settings)
    swap.train_head(trained.network, settings, splits, make_pipeline(settings, splits))
    changed = {name for name, value in trained.network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith(("class_capsules.", "primary.activation."))}


def test_recipes_are_those_of_the_trials() -> None:
    assert recipe_of("head-cutmix-at-first-6-epochs", 0).name == "head-cutmix-at-first-6-epochs"
    found = recipe_of("cnn-cutmix-at-first-6-epochs", 4)
    assert (found.name, found.data.fold, found.network.model) == ("cnn-cutmix-at-first-6-epochs-fold-4", 4, "cnn32")
