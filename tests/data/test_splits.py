"""Who is held out."""

from itertools import product

import pytest
import torch

from torchcaps.data.splits import make_splits, stratified_holdout, viewpoint_splits
from torchcaps.data.types import DataError, ImageSet, Split

AZIMUTHS = range(0, 36, 2)


def norb_like(instances: tuple[int, ...]) -> Split:
    """One pixel an image: five categories, the instances, nine elevations, 18 azimuths."""
    rows = torch.tensor(list(product(range(5), instances, range(9), AZIMUTHS)))  # [N, 4]
    images = torch.arange(len(rows)).remainder(256).to(torch.uint8).view(-1, 1, 1, 1)
    return Split(images, rows[:, 0], {"instance": rows[:, 1], "elevation": rows[:, 2], "azimuth": rows[:, 3]})


def norb_set() -> ImageSet:
    return ImageSet("norb", tuple("abcde"), norb_like((4, 6, 7, 8, 9)), norb_like((0, 1, 2, 3, 5)))


def plain_set(counts: tuple[int, ...] = (40, 20, 11)) -> ImageSet:
    labels = torch.cat([torch.full((n,), label) for label, n in enumerate(counts)])
    images = torch.arange(len(labels)).to(torch.uint8).view(-1, 1, 1, 1)
    return ImageSet("plain", tuple("abcdefgh"[: len(counts)]), Split(images, labels), Split(images, labels))


def unknown(data: ImageSet, factor: str) -> ImageSet:
    def without(split: Split) -> Split:
        return Split(split.images, split.labels, {**split.factors, factor: torch.full_like(split.labels, -1)})

    return ImageSet(data.name, data.classes, without(data.train), without(data.test))


def test_auto_holds_one_instance_of_each_category_out() -> None:
    data = norb_set()
    splits = make_splits(data)
    assert splits.validation is not None
    for label in range(5):
        held = set(splits.validation.factor("instance")[splits.validation.labels == label].tolist())
        kept = set(splits.train.factor("instance")[splits.train.labels == label].tolist())
        assert len(held) == 1
        assert len(kept) == 4
        assert held | kept == {4, 6, 7, 8, 9}
    assert len(splits.train) + len(splits.validation) == len(data.train)
    assert splits.test is data.test
    assert "5 held-out instances" in splits.note


def test_a_larger_fraction_holds_more_instances_out() -> None:
    splits = make_splits(norb_set(), validation="instance", fraction=0.4)
    assert splits.validation is not None
    assert len(splits.validation) == len(norb_set().train) * 2 // 5


def test_unknown_instances_are_stratified_and_it_says_so() -> None:
    data = unknown(norb_set(), "instance")
    splits = make_splits(data)
    assert splits.validation is not None
    assert "not known" in splits.note
    assert splits.validation.labels.bincount().tolist() == [81] * 5
    with pytest.raises(DataError, match="instance of 4050 of 4050 images is not known"):
        make_splits(data, validation="instance")


def test_a_single_instance_cannot_be_held_out() -> None:
    data = ImageSet("one", tuple("abcde"), norb_like((3,)), norb_like((0,)))
    assert "has one only" in make_splits(data).note
    with pytest.raises(DataError, match="validation='stratified'"):
        make_splits(data, validation="instance")


def test_stratified_takes_the_fraction_of_each_class() -> None:
    splits = make_splits(plain_set(), fraction=0.2)
    assert splits.validation is not None
    assert splits.validation.labels.bincount().tolist() == [8, 4, 2]
    both = torch.cat([splits.train.images, splits.validation.images]).flatten()
    assert sorted(both.tolist()) == list(range(71))


def test_a_class_of_one_image_stays_in_training() -> None:
    kept, held = stratified_holdout(torch.tensor([0, 0, 1]), 0.5, seed=0)
    assert 2 in kept.tolist()
    assert len(held) == 1


def test_none_trains_on_everything() -> None:
    data = plain_set()
    splits = make_splits(data, validation="none")
    assert splits.train is data.train
    assert splits.validation is None


@pytest.mark.parametrize("data", [norb_set(), plain_set()], ids=["instance", "stratified"])
def test_one_seed_one_split(data: ImageSet) -> None:
    first, again, other = (make_splits(data, seed=seed).validation for seed in (3, 3, 4))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_five_folds_hold_out_each_toy_once() -> None:
    data = norb_set()
    toys = {(label, instance) for label in range(5) for instance in data.train.factor("instance").unique().tolist()}
    for first in (0, 5):  # another five, in another order
        held = []
        for seed in range(first, first + 5):
            validation = make_splits(data, seed=seed).validation
            assert validation is not None
            held += set(zip(validation.labels.tolist(), validation.factor("instance").tolist(), strict=True))
        assert len(held) == len(toys)
        assert set(held) == toys


def test_folds_of_images_do_not_overlap() -> None:
    labels = torch.tensor([0] * 40 + [1] * 23 + [2])
    held = [set(stratified_holdout(labels, 0.1, seed)[1].tolist()) for seed in range(10)]
    assert all(len(one) == 4 + 2 for one in held)
    assert len(set().union(*held)) == 10 * (4 + 2)


def test_a_set_with_its_own_validation_split_keeps_it() -> None:
    plain = plain_set()
    data = ImageSet("own", plain.classes, plain.train, plain.test, None, plain.test, "3 files skipped")
    splits = make_splits(data)
    assert splits.train is data.train
    assert splits.validation is data.validation
    assert splits.note == "3 files skipped; validation: the set's own"
    assert len(make_splits(data, validation="none").train) == 2 * len(plain.train)


@pytest.mark.parametrize(
    ("factor", "familiar"), [("azimuth", {30, 32, 34, 0, 2, 4}), ("elevation", {0, 1, 2})], ids=str
)
def test_novel_viewpoints(factor: str, familiar: set[int]) -> None:
    data = norb_set()
    splits = viewpoint_splits(data, factor=factor)  # type: ignore[arg-type]
    assert splits.validation is not None
    everything = set(data.test.factor(factor).tolist())
    assert set(splits.train.factor(factor).tolist()) == familiar
    assert set(splits.validation.factor(factor).tolist()) == familiar
    assert set(splits.test.factor(factor).tolist()) == everything - familiar
    assert set(splits.familiar.factor(factor).tolist()) == familiar
    assert len(splits.train) + len(splits.validation) == len(data.train) // 3
    assert len(splits.test) + len(splits.familiar) == len(data.test)


def test_viewpoints_must_be_known() -> None:
    with pytest.raises(DataError, match="azimuth of 4050 of 4050 images is not known"):
        viewpoint_splits(unknown(norb_set(), "azimuth"))
    with pytest.raises(DataError, match="no factor 'azimuth'"):
        viewpoint_splits(plain_set())


def test_azimuths_in_other_units_are_refused() -> None:
    data = norb_set()
    degrees = Split(data.train.images, data.train.labels, {"azimuth": data.train.factor("azimuth") * 10})
    with pytest.raises(DataError, match="even numbers 0 to 34"):
        viewpoint_splits(ImageSet("norb", data.classes, degrees, degrees))


def test_sets_without_novel_viewpoints_are_refused() -> None:
    data = norb_set()
    low = data.test.take((data.test.factor("elevation") < 2).nonzero().squeeze(1))
    with pytest.raises(DataError, match="no test images of novel elevations"):
        viewpoint_splits(ImageSet("norb", data.classes, data.train, low), factor="elevation")
    high = data.test.take((data.test.factor("elevation") > 2).nonzero().squeeze(1))
    with pytest.raises(DataError, match="no test images of familiar elevations"):
        viewpoint_splits(ImageSet("norb", data.classes, data.train, high), factor="elevation")


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="validation is 'random'"):
        make_splits(plain_set(), validation="random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"fraction is 1\.5"):
        make_splits(plain_set(), fraction=1.5)
    with pytest.raises(ValueError, match="factor is 'lighting'"):
        viewpoint_splits(norb_set(), factor="lighting")  # type: ignore[arg-type]
