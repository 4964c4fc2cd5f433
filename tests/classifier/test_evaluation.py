"""Errors, against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.classifier import Classifier, Evaluation, evaluate
from torchcaps.classifier.evaluation import with_classes
from torchcaps.data import DataError, Split

Tiny = Callable[..., Classifier]


@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 10**6))
def test_figures_are_numpy_s(classes: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    label = generator.integers(0, classes, count)
    activation = generator.random((count, classes))
    found = Evaluation(
        classes=tuple("abcdef"[:classes]), label=torch.from_numpy(label), activation=torch.from_numpy(activation)
    )
    predicted = np.argmax(activation, 1)
    confusion = np.zeros((classes, classes), np.int64)
    for truth, prediction in zip(label, predicted, strict=True):
        confusion[truth, prediction] += 1
    assert found.error == np.mean(predicted != label)
    assert np.array_equal(found.confusion.numpy(), confusion)
    for index, (name, images, wrong) in enumerate(found.by_class()):
        assert name == "abcdef"[index]
        assert images == np.sum(label == index)
        assert wrong == np.sum((label == index) & (predicted != index))


@pytest.mark.parametrize(
    ("wrong", "images", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (2, 10, 0.0567, 0.5098), (50, 1000, 0.0381, 0.0653)],
)
def test_wilson_s_interval(wrong: int, images: int, low: float, high: float) -> None:
    """Values of a table."""
    activation = torch.eye(2)[(torch.arange(images) < wrong).long()]
    found = Evaluation(classes=("a", "b"), label=torch.zeros(images, dtype=torch.int64), activation=activation)
    assert found.interval == pytest.approx((low, high), abs=1e-4)


def test_one_network(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    found = evaluate([classifier], split)
    assert torch.equal(found.activation, classifier.predict(split.images).activation)
    assert torch.equal(found.label, split.labels)


def test_an_ensemble_is_the_mean(tiny: Tiny, split: Split) -> None:
    networks = [tiny(0), tiny(1, routing="em"), tiny(2, model="cnn32")]
    expected = np.mean([network.predict(split.images, crops=5).activation.numpy() for network in networks], axis=0)
    found = evaluate(networks, split, crops=5)
    np.testing.assert_allclose(found.activation.numpy(), expected, rtol=1e-6)


def test_what_cannot_be_evaluated(tiny: Tiny, split: Split) -> None:
    with pytest.raises(DataError, match="0 networks on 7 images"):
        evaluate([], split)
    with pytest.raises(DataError, match="1 networks on 0 images"):
        evaluate([tiny()], split.take(torch.arange(0)))
    with pytest.raises(DataError, match=r"do not know the same classes: ant, .* and x, y, z"):
        evaluate([tiny(), tiny(names=("x", "y", "z"))], split)
    with pytest.raises(DataError, match="not all in 0 to 2"):
        evaluate([tiny()], Split(split.images, split.labels + 1))


def test_classes_in_another_order(split: Split) -> None:
    found = with_classes(split, ("c", "a", "b"), ("a", "b", "c"))
    assert found.labels.tolist() == [2, 0, 1, 2, 0, 1, 1]
    with pytest.raises(DataError, match="the images are of the classes a, b, d; the network knows a, b, c"):
        with_classes(split, ("a", "b", "d"), ("a", "b", "c"))
