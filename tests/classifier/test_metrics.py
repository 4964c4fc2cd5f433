"""Precision, recall, F1, top-5 and calibration errors against NumPy; statistics against known answers."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.classifier import Evaluation
from torchcaps.classifier.metrics import calibration_error, figures_of_classes, top_error
from torchcaps.classifier.statistics import mcnemar, wilson_interval
from torchcaps.errors import UserError


def evaluation(label: list[int], activation: list[list[float]] | np.ndarray) -> Evaluation:
    values = torch.tensor(np.asarray(activation), dtype=torch.float32)
    classes = tuple(f"class {number}" for number in range(values.shape[1]))
    return Evaluation(classes=classes, label=torch.tensor(label), activation=values)


def divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def numpy_calibration(label: np.ndarray, activation: np.ndarray) -> float:
    """By its definition, bin by bin."""
    shares = activation / activation.sum(1, keepdims=True)
    confidence, is_right = shares.max(1), shares.argmax(1) == label
    places = np.minimum((confidence * 15).astype(int), 14)
    error = 0.0
    for place in range(15):
        inside = places == place
        if inside.any():
            error += inside.mean() * abs(confidence[inside].mean() - is_right[inside].mean())
    return error


@given(st.integers(2, 9), st.integers(1, 60), st.integers(0, 10**6))
def test_figures_are_numpy_s(classes: int, count: int, seed: int) -> None:
    """Among them classes without images, and classes that are never predicted."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, generator.integers(1, classes + 1), count)
    activation = generator.random((count, classes)).astype(np.float32)
    activation[:, generator.integers(classes)] = 0.0
    found = evaluation(label.tolist(), activation)
    predicted = activation.argmax(1)
    for place, of_class in enumerate(figures_of_classes(found)):
        both = int(np.sum((label == place) & (predicted == place)))
        images, taken = int(np.sum(label == place)), int(np.sum(predicted == place))
        expected = divide(both, taken), divide(both, images), divide(2 * both, images + taken)
        assert (of_class.images, of_class.wrong) == (images, images - both)
        for share, its in zip(of_class[3:], expected, strict=True):
            assert share is its is None or share == pytest.approx(its, abs=1e-6)
    order = np.argsort(-activation, axis=1)[:, :5]
    missed = np.mean([truth not in best for truth, best in zip(label, order, strict=True)])
    assert top_error(found) == (pytest.approx(missed) if classes > 5 else None)
    assert calibration_error(found) == pytest.approx(numpy_calibration(label, activation.astype(float)), abs=1e-6)


def test_known_figures() -> None:
    """Three classes; of the last there is no image, and the second is never predicted."""
    found = figures_of_classes(evaluation([0, 0, 0, 1], [[1, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]]))
    assert found[0][:3] == ("class 0", 3, 1)
    assert found[0][3:] == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert found[1] == ("class 1", 1, 1, None, 0.0, 0.0)
    assert found[2] == ("class 2", 0, 0, 0.0, None, 0.0)
    assert figures_of_classes(evaluation([0], [[1, 0, 0]]))[2] == ("class 2", 0, 0, None, None, None)


def test_one_image() -> None:
    found = evaluation([0], [[0.6, 0.2, 0, 0, 0, 0]])
    assert calibration_error(found) == pytest.approx(0.25)  # sure to 0.6 / 0.8, and right
    assert top_error(found) == 0.0
    assert found.interval == pytest.approx((0.0, 0.793451), abs=1e-6)


def test_calibration_by_hand() -> None:
    """Two bins: four images of confidence 0.9, three of them right; one of confidence 0.5 that is wrong."""
    found = evaluation([0, 0, 0, 1, 1], [[9, 1], [9, 1], [0.9, 0.1], [0.9, 0.1], [0.5, 0.5]])
    assert calibration_error(found) == pytest.approx((4 * 0.15 + 1 * 0.5) / 5, abs=1e-6)


def test_full_confidence_is_in_the_last_bin() -> None:
    """Were it a bin of its own, errors of two bins would not make up for each other."""
    found = evaluation([1, 0], [[1.0, 0.0], [0.96, 0.04]])
    assert calibration_error(found) == pytest.approx(0.98 - 0.5, abs=1e-6)


def test_activations_that_say_nothing() -> None:
    """All zero, or not a number: no share is NaN."""
    found = evaluation([0, 1], [[0.0, 0.0], [math.nan, math.nan]])
    assert calibration_error(found) == pytest.approx(0.0)  # sure to one half, right in one of two
    many = evaluation([0, 1], np.full((2, 6), np.nan))
    assert math.isfinite(top_error(many) or 0.0)


def test_without_torchmetrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics.functional", None)
    found = evaluation([0, 1], [[1, 0], [0, 1]])
    with pytest.raises(UserError, match=r"pip install 'torchcaps\[cli\]'"):
        figures_of_classes(found)
    assert found.interval[0] == 0.0  # needs nothing


@pytest.mark.parametrize(
    ("wrong", "images", "expected"),
    [
        (0, 10, (0.0, 0.277533)),
        (10, 10, (0.722467, 1.0)),
        (5, 10, (0.236593, 0.763407)),
        (1, 1, (0.206549, 1.0)),
        (81, 263, (0.255290, 0.366208)),  # the example of Newcombe, 1998: 0.2553 to 0.3662
    ],
)
def test_wilson(wrong: int, images: int, expected: tuple[float, float]) -> None:
    assert wilson_interval(wrong, images) == pytest.approx(expected, abs=5e-5)


@given(st.integers(1, 500), st.data())
def test_wilson_s_ends_solve_its_equation(images: int, data: st.DataObject) -> None:
    """The shares p at which the one found is 1.96 standard errors of p away; the interval is around the one found."""
    wrong = data.draw(st.integers(0, images))
    share, ends = wrong / images, wilson_interval(wrong, images)
    assert 0 <= ends[0] <= share <= ends[1] <= 1
    for end in ends:
        if 0 < end < 1:
            assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / images), rel=1e-5)


def test_no_interval_without_images() -> None:
    with pytest.raises(ValueError, match="0 wrong of 0 images"):
        wilson_interval(0, 0)


def test_mcnemar_of_few_is_exact() -> None:
    found = mcnemar(1, 5)
    assert found.statistic is None
    assert found.p == pytest.approx(2 * (1 + 6) / 2**6)  # none or one of six, in either direction
    assert mcnemar(0, 0).p == 1.0
    assert mcnemar(3, 3).p == 1.0  # not more than certain
    assert mcnemar(0, 10).p == pytest.approx(2 / 2**10)
    assert mcnemar(12, 12).statistic is None


def test_mcnemar_of_many() -> None:
    """The textbook's drug trial: 121 and 59 discordant pairs, (62 - 1)^2 / 180."""
    found = mcnemar(121, 59)
    assert found.statistic == pytest.approx(61**2 / 180)
    assert found.p == pytest.approx(5.45e-6, rel=0.01)
    assert mcnemar(59, 121).p == found.p
    assert mcnemar(40, 40).p == 1.0
    assert mcnemar(13, 12).statistic is not None
    # 3.8415 is where chi-squared of one degree of freedom leaves 5 %; (|60 - 40| - 1)^2 / 100 = 3.61 is below it
    assert mcnemar(60, 40).p == pytest.approx(0.0574, abs=1e-4)


@given(st.integers(0, 200), st.integers(0, 200))
def test_both_ways_to_compute_it_agree(first: int, second: int) -> None:
    p, count = mcnemar(first, second).p, first + second
    exact = min(1.0, 2 * sum(math.comb(count, k) for k in range(min(first, second) + 1)) / 2**count)
    assert p == pytest.approx(exact, abs=0.02)
    assert 0 <= p <= 1
