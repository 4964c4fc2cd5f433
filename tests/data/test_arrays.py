"""Users' arrays."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from torchcaps.data.arrays import as_channels, as_images, as_labels
from torchcaps.data.types import DataError

shapes = st.tuples(st.integers(1, 4), st.integers(4, 9), st.integers(5, 9))  # [N, H, W]


@given(arrays.arrays(np.uint8, shapes))
def test_bytes_are_kept(grey: np.ndarray) -> None:
    found = as_images(grey)
    assert found.dtype == torch.uint8
    assert np.array_equal(found.numpy(), grey[:, None])
    for same in (grey[:, None], grey[..., None], torch.from_numpy(grey), grey.copy(order="F"), list(grey)):
        assert torch.equal(as_images(same), found)
    colours = np.stack([grey, grey // 2, 255 - grey], -1)  # [N, H, W, 3]
    assert np.array_equal(as_images(colours).numpy(), colours.transpose(0, 3, 1, 2))
    assert torch.equal(as_images(colours.transpose(0, 3, 1, 2)), as_images(colours))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_floats_are_bytes_over_255(dtype: str) -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert np.array_equal(as_images((levels / 255).astype(dtype)).numpy()[:, 0], levels)


def test_one_image() -> None:
    assert as_images(np.zeros((9, 7), np.uint8)).shape == (1, 1, 9, 7)
    assert as_images(np.zeros((9, 7, 3), np.uint8)).shape == (1, 3, 9, 7)
    assert as_images(np.zeros((3, 9, 7), np.uint8)).shape == (3, 1, 9, 7)  # three, as the docs say


def test_views_that_torch_does_not_take() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), np.uint8)
    assert np.array_equal(as_images(colours[..., ::-1]).numpy(), colours[..., ::-1].transpose(0, 3, 1, 2))
    colours.setflags(write=False)  # as an image of Pillow's comes; torch would warn
    assert np.array_equal(as_images(colours).numpy(), colours.transpose(0, 3, 1, 2))
    assert as_images(np.asarray(Image.new("RGB", (5, 6)))).shape == (1, 3, 6, 5)


def test_tensors_with_gradients() -> None:
    assert not as_images(torch.rand(2, 5, 5, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros(5, np.uint8), r"images have shape \[5\], expected \[N, H, W\]"),
        (np.zeros((1, 2, 3, 4, 5), np.uint8), r"images have shape \[1, 2, 3, 4, 5\]"),
        (np.zeros((0, 5, 5), np.uint8), r"there are no images in shape \[0, 5, 5\]"),
        (np.zeros((2, 5, 5), np.int64), "images are torch.int64, expected uint8"),
        (np.zeros((2, 5, 5), np.uint16), "images are torch.uint16, expected uint8"),
        (np.zeros((2, 5, 5), np.bool_), "images are torch.bool, expected uint8"),
        (np.zeros((2, 5, 5), np.complex64), "images are complex64, expected uint8"),
        (np.array([["a"]]), "images are <U1, expected uint8"),
        (np.full((2, 5, 5), 255.0), r"floats from 255 to 255, expected \[0, 1\]; bytes 0 to 255 come as uint8"),
        (np.full((2, 5, 5), -0.1), "floats from -0.1 to -0.1"),
        (np.full((2, 5, 5), np.nan), "floats from nan to nan"),
        (torch.full((2, 5, 5), float("inf")), "floats from inf to inf"),
        ([np.zeros((5, 5)), np.zeros((5, 6))], "images of more than one shape"),
    ],
    ids=str,
)
def test_what_is_no_image(images: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_images(images)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(5), st.just(4), st.just(3))))
def test_grey_is_pillow_s(colours: np.ndarray) -> None:
    expected = [np.asarray(Image.fromarray(image).convert("L")) for image in colours]
    assert np.array_equal(as_channels(as_images(colours), 1).numpy()[:, 0], expected)


def test_grey_as_colours_and_back() -> None:
    grey = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    colours = as_channels(grey, 3)
    assert colours.shape == (1, 3, 16, 16)
    assert torch.equal(as_channels(colours, 1), grey)
    assert as_channels(grey, 1) is grey
    with pytest.raises(DataError, match=r"4 channels, expected 3; leave the transparency out, images\[:, :3\]"):
        as_channels(grey.expand(1, 4, 16, 16), 3)
    with pytest.raises(DataError, match=r"1 channels, expected 2$"):
        as_channels(grey, 2)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=2).filter(lambda values: len(set(values)) > 1))
def test_numbers_as_labels(values: list[int]) -> None:
    for given_labels in (values, np.array(values), torch.tensor(values)):
        index, names = as_labels(given_labels, len(values))
        assert index.dtype == torch.int64
        assert [int(names[i]) for i in index] == values
        assert [int(name) for name in names] == sorted(set(values))


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


@given(st.lists(words, min_size=2).filter(lambda values: len(set(values)) > 1))
def test_strings_as_labels(values: list[str]) -> None:
    for given_labels in (values, np.array(values), np.array(values, dtype=object)):
        index, names = as_labels(given_labels, len(values))
        assert [names[i] for i in index] == values
        assert sorted(names) == list(names)


def test_other_labels() -> None:
    assert as_labels(np.array([b"no", b"yes"]), 2)[1] == ("no", "yes")
    assert as_labels([True, False, True], 3)[1] == ("False", "True")


@pytest.mark.parametrize(
    ("labels", "count", "message"),
    [
        ([0, 1], 3, r"labels have shape \[2\], expected \[3\]: one for each image"),
        ([[0], [1]], 2, r"labels have shape \[2, 1\]"),
        ([0.5, 1.0], 2, "labels are float64, expected whole numbers or strings"),
        (np.array(["a", 1], dtype=object), 2, "labels are object"),
        ([7, 7], 2, "all labels are 7: expected at least two classes"),
        (np.zeros(0, np.int64), 0, "there are no labels: expected at least two classes"),
    ],
    ids=str,
)
def test_what_is_no_label(labels: Any, count: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_labels(labels, count)
