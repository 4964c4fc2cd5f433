"""The measures of explanations, on functions whose curves are known."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.tools.measure_explanations import area, baselines, curve, masks_of, order_of, rows
from torchcaps.classifier import Classifier
from torchcaps.data import Pipeline
from torchcaps.data.turntable import load_turntable, object_masks

START, END = torch.ones(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)


def corner(images: Tensor) -> Tensor:
    """A class that depends on one pixel only."""
    return images[:, 0, 0, 0]


def test_the_hottest_pixel_decides() -> None:
    heat = torch.zeros(2, 4, 4)
    heat[:, 0, 0] = 1
    found = curve(corner, START, END, heat, steps=4)
    assert found.tolist() == [[1, 1], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert area(found) == pytest.approx(1 / 8)  # half of the first step
    assert area(curve(corner, END, START, heat, steps=4)) == pytest.approx(7 / 8)


def test_the_coldest_pixel_decides() -> None:
    heat = torch.ones(2, 4, 4)
    heat[:, 0, 0] = 0
    assert curve(corner, START, END, heat, steps=4)[:, 0].tolist() == [1, 1, 1, 1, 0]
    assert area(curve(corner, START, END, heat, steps=4)) == pytest.approx(7 / 8)


def test_all_pixels_count_alike() -> None:
    def brightness(images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))

    found = curve(brightness, START, END, torch.rand(2, 4, 4), steps=16)
    torch.testing.assert_close(found[:, 0], torch.linspace(1, 0, 17))
    assert area(found) == pytest.approx(0.5)


def test_order() -> None:
    heat = torch.tensor([[[0.1, 0.4], [0.3, 0.2]]])
    assert order_of(heat).tolist() == [[[3, 0], [1, 2]]]
    ties = order_of(torch.zeros(1, 8, 8)).flatten()
    assert sorted(ties.tolist()) == list(range(64))
    assert ties.tolist() != list(range(64))  # not from the upper left corner on


def test_rows_and_masks(tmp_path: Path) -> None:
    split = load_turntable(tmp_path, pairs=6, progress=False).train
    options = {"num_classes": 5, "first_channels": 16, "image_size": 32}
    classifier = Classifier("hybrid32", options, Pipeline(crop=32, resize=36), tuple("abcde")).eval()
    masks = masks_of(classifier, split)
    assert masks.shape == (6, 32, 32)
    assert all(0.02 < float(mask.mean()) < 0.7 for mask in masks)
    found = list(rows(classifier, classifier.prepare(split), masks))
    assert [row.method for row in found][-2:] == ["grad-cam", "votes"]
    for row in found:
        assert all(value is not None and 0 <= value <= 1 for value in row[1:])
    image = classifier.pipeline.evaluate(classifier.prepare(split).images, split.labels).image
    centre = dict(baselines(image))["the middle first"]
    expected = float((centre * masks).sum((1, 2)).div(centre.sum((1, 2))).mean())
    assert found[1].inside == pytest.approx(expected)


def test_masks_follow_the_crop(tmp_path: Path) -> None:

    split = load_turntable(tmp_path, pairs=3, progress=False).train
    options = {"num_classes": 5, "first_channels": 16, "image_size": 64}
    whole = Classifier("hybrid64", options, Pipeline(crop=64, resize=96), tuple("abcde"))
    assert torch.equal(masks_of(whole, split).bool(), object_masks(split)[:, 0, 16:80, 16:80] > 127)
