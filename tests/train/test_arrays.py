"""Three lines to train on arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import torchcaps
from torchcaps.errors import UserError
from torchcaps.train import fit

Array = npt.NDArray[Any]
TINY: dict[str, Any] = {"size": 16, "first_channels": 16, "residual": False, "reconstruction": 0.0, "progress": False}


def make_set(count: int, seed: int) -> tuple[Array, Array]:
    """Images ``[N, 18, 18]`` that are bright above, or bright on the left; and which."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = random.integers(0, 100, (count, 18, 18), dtype=np.uint8)
    images[labels == 0, :9] += 120
    images[labels == 1, :, :9] += 120
    return images, labels


IMAGES, LABELS = make_set(64, 0)


def test_learns_and_names(capfd: pytest.CaptureFixture[str]) -> None:
    names = np.array(["above", "left"])
    classifier = torchcaps.fit(IMAGES, names[LABELS], **{**TINY, "residual": True}, epochs=10)
    assert classifier.classes == ("above", "left")
    fresh, labels = make_set(100, 1)
    predictions = classifier.predict(fresh)
    error = np.mean([name != expected for name, expected in zip(predictions.names, names[labels], strict=True)])
    assert error <= 0.1  # by chance, 0.5
    assert predictions.activation.shape == (100, 2)
    assert not classifier.training
    assert capfd.readouterr() == ("", "")  # progress=False


def bits(images: Any, labels: Any, **changes: Any) -> bytes:
    classifier = fit(images, labels, **{**TINY, "epochs": 1, **changes})
    return b"".join(value.numpy().tobytes() for value in classifier.state_dict().values())


def test_one_seed_gives_the_same_bits() -> None:
    first = bits(IMAGES, LABELS)
    torch.manual_seed(99)
    assert bits(IMAGES, LABELS) == first
    assert bits(torch.from_numpy(IMAGES), torch.from_numpy(LABELS)) == first
    assert bits(IMAGES / 255, LABELS) == first  # floats in [0, 1]
    assert bits(IMAGES, LABELS, seed=1) != first


@pytest.mark.parametrize("channels_last", [False, True])
def test_colours(channels_last: bool) -> None:
    colours = np.stack([IMAGES, IMAGES // 2, IMAGES // 3], axis=3 if channels_last else 1)
    classifier = fit(colours, LABELS, **TINY, epochs=1)
    assert classifier.network.in_channels == 3
    assert not classifier.pipeline.deforms
    assert len(classifier.predict(colours[:5]).names) == 5


def test_numbers_are_names_too() -> None:
    classifier = fit(IMAGES, np.where(LABELS, 7, 3), **TINY, epochs=1)
    assert classifier.classes == ("3", "7")
    assert set(classifier.predict(IMAGES[:3]).names) <= {"3", "7"}


def test_without_validation_trains_on_everything(capsys: pytest.CaptureFixture[str]) -> None:
    fit(IMAGES, LABELS, **{**TINY, "progress": True}, epochs=1, validation="none")
    shown = capsys.readouterr().out
    assert "training error" in shown
    assert "validation error" not in shown


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    fit(IMAGES, LABELS, **{**TINY, "progress": True}, epochs=2)
    assert [line[:9] for line in capsys.readouterr().out.splitlines()] == ["epoch 1/2", "epoch 2/2"]


@pytest.mark.parametrize("count", [2, 4, 6])
def test_few_images(count: int) -> None:
    classifier = fit(IMAGES[:count], LABELS[:count], **TINY, epochs=1)
    assert len(classifier.predict(IMAGES[:3]).names) == 3


def test_errors() -> None:
    for images, labels, words in (
        (IMAGES, np.zeros(64, dtype=int), "all labels are 0: expected at least two classes"),
        (IMAGES, LABELS[:-1], "one for each image"),
        (IMAGES[:0], LABELS[:0], "there are no images"),
        (IMAGES * 1.0, LABELS, r"expected \[0, 1\]"),
        (IMAGES, LABELS * 0.5, "expected whole numbers or strings"),
    ):
        with pytest.raises(UserError, match=words):
            fit(images, labels, **TINY)
    with pytest.raises(UserError, match="batch_size is 65"):
        fit(IMAGES, LABELS, **TINY, batch_size=65)
    with pytest.raises(UserError, match="weights is 'bset'"):
        fit(IMAGES, LABELS, **TINY, weights="bset")
    for changes, words in (
        ({"nonsense": 1}, "no field nonsense"),
        ({"learning_rate": 0.1}, r"no field learning_rate; did you mean rate\?"),
        ({"epoch": 3}, "did you mean epochs?"),
        ({"progess": False}, r"fit has no argument progess; did you mean progress\?"),
        ({"epochs": 2.5}, "epochs is 2.5, expected a whole number"),
        ({"epochs": 10**30}, "expected at most 1000000"),
        ({"size": 10**6}, "size is 1000000, expected at most 2048"),
        ({"first_channels": 16 * 10**6}, "first_channels is 16000000, expected at most 4096"),
        ({"seed": 2**70}, "expected at most 9223372036854775807"),
        ({"seed": -1}, "seed is -1, expected 0 or more"),
        ({"name": "../x"}, "name: for data sets and folders"),
        ({"camera": "both"}, "camera: for data sets and folders, not for arrays"),
        ({"root": "here", "skip_bad": True}, "root, skip_bad: for data sets"),
    ):
        with pytest.raises(UserError, match=words):
            fit(IMAGES, LABELS, **(TINY | changes))


def test_folds_hold_out_other_images() -> None:
    assert bits(IMAGES, LABELS, fold=1) != bits(IMAGES, LABELS)


def test_global_random_numbers_stay_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(IMAGES, LABELS, **TINY, epochs=1)
    assert torch.equal(torch.rand(3), expected)
