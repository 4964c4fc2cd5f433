"""Fewer images: at most so many of each split, spread evenly."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data import ImageSet, Split, Splits
from torchcaps.errors import UserError
from torchcaps.train import Recipe, train
from torchcaps.train import recipe as named_recipe
from torchcaps.train.assemble import load_data, spread_indices, with_fewer

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=200)


@given(LABELS, st.integers(1, 250))
def test_each_class_has_its_share(labels: list[int], most: int) -> None:
    label = torch.tensor(labels)
    index = spread_indices(label, most)
    count = min(most, len(label))
    assert index.tolist() == sorted(set(index.tolist()))
    assert len(index) == count
    for which in set(labels):
        share = labels.count(which) * count / len(labels)
        assert abs(int((label[index] == which).sum()) - share) < 1 + 1e-9


@given(st.integers(1, 300), st.integers(1, 300))
def test_one_class_is_taken_from_all_over(images: int, most: int) -> None:
    index = spread_indices(torch.zeros(images, dtype=torch.int64), most)
    gaps = torch.cat([index, torch.tensor([images])]).diff()
    assert index[0] == 0
    assert int(gaps.max() - gaps.min()) <= 1


@pytest.mark.parametrize("order", ["sorted", "in turns"])
def test_all_classes_stay_whatever_the_order(order: str) -> None:
    labels = torch.arange(24300) % 5
    if order == "sorted":
        labels = labels.sort().values
    for most in (5, 20, 25, 100):  # every n-th image would be of one class
        assert torch.bincount(labels[spread_indices(labels, most)]).tolist() == [most // 5] * 5


def split(images: int) -> Split:
    return Split(torch.zeros(images, 1, 4, 4, dtype=torch.uint8), torch.arange(images) % 2)


def test_all_splits_and_the_note() -> None:
    fewer = with_fewer(Splits(("a", "b"), split(50), split(30), split(6), note="some"), 8)
    assert fewer.validation is not None
    assert [len(fewer.train), len(fewer.validation), len(fewer.test)] == [8, 8, 6]
    assert fewer.note == "some; at most 8 images of each split"


def test_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = SimpleNamespace(train=split(50), validation=None, test=split(40), classes=("a", "b"), note="")
    monkeypatch.setattr("torchcaps.train.assemble.load_set", lambda found: data)
    for images, expected in ((None, (50, 40)), (10, (10, 10)), (45, (45, 40))):
        splits = load_data(Recipe.of(images=images, batch_size=5, validation="none"))
        assert (len(splits.train), len(splits.test)) == expected


def test_folds_hold_out_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1)
    data = SimpleNamespace(
        train=Split(images, torch.arange(50) % 2), validation=None, test=split(4), classes=("a", "b"), note=""
    )
    monkeypatch.setattr("torchcaps.train.assemble.load_set", lambda found: data)
    held = [load_data(Recipe.of(fold=fold)).validation for fold in (0, 0, 1)]
    first, same, other = (set(one.images.flatten().tolist()) for one in held if one is not None)
    assert first == same != other


def test_each_camera_in_training_and_the_left_in_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(first: int, count: int) -> Split:
        """Pixels of the left camera are the pair's number, those of the right 100 more."""
        number = torch.arange(first, first + count, dtype=torch.uint8)
        images = torch.stack([number, number + 100], 1).view(count, 2, 1, 1)
        return Split(images, torch.arange(count) % 2, {"lighting": torch.arange(count) % 3})

    data = ImageSet("pairs", ("a", "b"), pairs(0, 60), pairs(60, 20))
    monkeypatch.setattr("torchcaps.train.assemble.load", lambda name, **options: data)
    splits = load_data(Recipe.of(data="smallnorb", camera="each", validation="stratified"))
    assert splits.validation is not None
    number, held = splits.train.images.flatten().tolist(), splits.validation.images.flatten().tolist()
    left, right = number[: len(number) // 2], number[len(number) // 2 :]
    assert right == [value + 100 for value in left]
    assert sorted(left + held) == list(range(60))  # no pair on both sides
    assert splits.train.labels.tolist() == [value % 100 % 2 for value in number]
    assert splits.train.factor("lighting").tolist() == [value % 100 % 3 for value in number]
    assert splits.test.images.flatten().tolist() == list(range(60, 80))
    fewer = load_data(Recipe.of(data="smallnorb", camera="each", validation="none", images=40, batch_size=5))
    assert len(fewer.train) == 40
    assert int((fewer.train.images >= 100).sum()) == 20


@pytest.mark.parametrize("images", [-1, 0, 49])
def test_fewer_than_a_batch(images: int) -> None:
    with pytest.raises(UserError, match=f"images is {images}, fewer than a batch: expected at least batch_size, 50"):
        named_recipe("mnist-frem", images=images)


class Untouchable:
    """A test split of which only the number of its images may be known."""

    def __len__(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the test split's {name} was read")


def test_training_without_a_look_at_the_test_split(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = load_data(recipe)
    hidden = Splits(splits.classes, splits.train, splits.validation, Untouchable(), note="")  # type: ignore[arg-type]
    monkeypatch.setattr("torchcaps.train.run.load_data", lambda found: hidden)
    with pytest.raises(AssertionError, match="was read"):
        train(recipe, output=tmp_path / "tested")
    finished = train(recipe, output=tmp_path / "run", test=False)
    assert finished is not None
    assert finished.evaluation is None
    assert (tmp_path / "run/model.safetensors").is_file()
    assert not (tmp_path / "run/report.html").exists()
    assert '"test_error": null' in (tmp_path / "run/result.json").read_text()
    assert '"validation_error": 0.' in (tmp_path / "run/result.json").read_text()
