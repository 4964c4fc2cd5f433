"""The way of the votes, against loops over all fields."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import one_hot

from torchcaps.classifier import Classifier, explain, heat_overlay
from torchcaps.classifier.explain.votes import Step, step_back
from torchcaps.data import Split
from torchcaps.errors import UserError
from torchcaps.functional.registry import list_routings
from torchcaps.models import HybridNetwork
from torchcaps.nn import CapsuleConv2d, record_routing
from torchcaps.ops.window import Window

Tiny = Callable[..., Classifier]
Array = np.ndarray


def by_loops(relevance: Array, activation: Array, coupling: Array, window: Window) -> Array:
    """One image: relevance [Ho, Wo, J], activation [n, H, W], coupling [Ho, Wo, I, J] -> [H, W, n]."""
    n, height, width = activation.shape
    (kh, kw), (sh, sw), (ph, pw) = window
    found = np.zeros((height, width, n))
    for row, column, j in np.ndindex(*relevance.shape):
        weights = {}
        for y, x, c in np.ndindex(kh, kw, n):
            place = (row * sh + y - ph, column * sw + x - pw, c)
            if 0 <= place[0] < height and 0 <= place[1] < width:
                i = (y * kw + x) * n + c
                weights[place] = coupling[row, column, i, j] * activation[c, place[0], place[1]]
        total = sum(weights.values())
        for place, weight in weights.items():
            found[place] += relevance[row, column, j] * (weight / total if total > 0 else 1 / len(weights))
    return found


sides = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(sides, sides, sides, st.integers(3, 7), st.integers(3, 7), st.integers(0, 10**6))
def test_a_step_is_that_of_loops(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], height: int, width: int, seed: int
) -> None:
    padding = (min(padding[0], kernel[0]) - 1, min(padding[1], kernel[1]) - 1)  # no field lies in the padding alone
    window = Window(kernel, stride, padding)
    n, outputs = 2, 3
    shape = window.output_size(height, width)
    generator = np.random.default_rng(seed)
    activation = generator.random((2, n, height, width)) * (generator.random((2, n, height, width)) < 0.5)
    coupling = generator.random((2, *shape, kernel[0] * kernel[1] * n, outputs))
    coupling *= generator.random(coupling.shape) < 0.5  # some capsules have no weight at all
    relevance = generator.random((2, *shape, outputs))
    step = Step(torch.from_numpy(activation), window, torch.from_numpy(coupling))
    found = step_back(torch.from_numpy(relevance), step)
    expected = [by_loops(*sample, window) for sample in zip(relevance, activation, coupling, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.sum((1, 2, 3)), relevance.sum((1, 2, 3)))


def heat_by_loops(network: HybridNetwork, image: torch.Tensor) -> list[Array]:
    """The maps of one image [1, C, S, S], from the class capsules down to the pixels."""
    capsules = network.primary(image)
    steps = []
    for layer in [*network.stages, network.class_capsules]:
        with record_routing(layer) as records:
            output = layer(capsules)
        if records:
            height, width = capsules.activation.shape[2:]
            whole = Window((height, width), (1, 1), (0, 0))
            window = layer.window if isinstance(layer, CapsuleConv2d) else whole
            steps.append((capsules.activation[0].numpy(), records[""][0].coupling[0].numpy(), window))
        capsules = output
    relevance = one_hot(output.activation[0].argmax(), network.num_classes).numpy()[None, None]
    maps = []
    for activation, coupling, window in reversed(steps):
        relevance = by_loops(relevance, activation, coupling, window)
        maps.append(relevance.sum(-1))
    return maps


@pytest.mark.parametrize("routing", list_routings())
@torch.no_grad()
def test_a_network_is_that_of_loops(tiny: Tiny, split: Split, routing: str) -> None:
    classifier = tiny(routing=routing)
    prepared = classifier.prepare(split).take(torch.arange(5))  # more than one batch
    found = explain(classifier, prepared, "votes")
    batch = classifier.pipeline.evaluate(prepared.images, prepared.labels)
    output = classifier(batch.image)
    assert len(found) == 5
    for sample, explanation in enumerate(found):
        expected = heat_by_loops(classifier.network, batch.image[sample : sample + 1])
        names = ["stages.0", "stages.2", "stages.4", "class_capsules"]
        assert list(explanation.layers) == names
        for name, maps in zip(reversed(names), expected, strict=True):
            np.testing.assert_allclose(explanation.layers[name].numpy(), maps, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(explanation.heat, explanation.layers["stages.0"])
        assert explanation.heat.shape == (16, 16)
        assert explanation.heat.min() >= 0
        assert float(explanation.heat.sum()) == pytest.approx(1, abs=1e-6)
        assert explanation.label == output.activation[sample].argmax()
        assert explanation.activation == pytest.approx(float(output.activation[sample].max()), abs=1e-4)
        assert torch.equal(explanation.image, prepared.images[sample, :, 4:20, 2:18] / 255)
        assert explanation.reconstruction is None


def test_reconstructions(tiny: Tiny, split: Split) -> None:
    classifier = tiny(decoder=True, in_channels=3).train()
    prepared = classifier.prepare(split)
    found = explain(classifier, prepared)
    assert classifier.training  # as it was
    with torch.no_grad():
        output = classifier(classifier.pipeline.evaluate(prepared.images, prepared.labels).image)
        expected = classifier.network.reconstruct(output)
    for explanation, image in zip(found, expected, strict=True):
        assert explanation.reconstruction is not None
        torch.testing.assert_close(explanation.reconstruction, image, rtol=1e-3, atol=1e-4)


def test_votes_from_one_place_only(tiny: Tiny) -> None:
    classifier = tiny()
    network = HybridNetwork((), num_classes=3, image_size=16, first_channels=16)  # class capsules on the pixels
    classifier.network = network
    with torch.no_grad():
        network.primary.pose.weight.zero_()[:, :, 2, 2] = 1.0  # the pose is the pixel itself
        network.primary.activation.weight.fill_(100.0)
        network.primary.activation.bias.fill_(-2000.0)  # no activation at all, unless the pixel is bright
    image = torch.zeros(1, 20, 20, dtype=torch.uint8)
    image[0, 7, 12] = 255
    [explanation] = explain(classifier, classifier.prepare(image), "votes")
    assert explanation.heat.nonzero().tolist() == [[5, 10]]  # the crop begins at (2, 2)
    assert explanation.heat[5, 10] == 1


def test_capsules_on_every_second_pixel(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    network = HybridNetwork((), num_classes=3, image_size=8, first_channels=16)
    network.image_size = 16
    network.primary = nn.Sequential(nn.AvgPool2d(2), network.primary)  # type: ignore[assignment]
    classifier.network = network
    for explanation in explain(classifier, classifier.prepare(split), "votes"):
        coarse = explanation.layers["class_capsules"]  # [8, 8]
        torch.testing.assert_close(explanation.heat, coarse.repeat_interleave(2, 0).repeat_interleave(2, 1) / 4)


def test_no_images(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    assert explain(classifier, classifier.prepare(split).take(torch.arange(0))) == []


def test_what_is_refused(tiny: Tiny, split: Split) -> None:
    with pytest.raises(UserError, match=r"cnn32 has no capsules, so no votes to follow: .*\(integrated-gradients, "):
        explain(tiny(model="cnn32"), split, "votes")
    with pytest.raises(UserError, match=r"method is 'vote', expected one of integrated-gradients, .*votes"):
        explain(tiny(), split, "vote")  # type: ignore[arg-type]


@given(st.sampled_from([1, 2, 3]), st.integers(0, 10**6))
def test_overlay(channels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    heat = torch.rand(8, 8, generator=generator)
    overlay = heat_overlay(torch.zeros(channels, 8, 8), heat / heat.sum())
    assert overlay.shape == (3, 8, 8)
    assert overlay.dtype == torch.uint8
    brightness = overlay.sum(0, dtype=torch.int64).flatten()
    hotter = brightness[heat.flatten().argsort()]
    assert (hotter.diff() >= -3).all()  # the hotter, the brighter, but for the rounding of three colours
    assert hotter[-1] > 1.5 * hotter[len(hotter) // 2]
    assert hotter[len(hotter) // 2] > 1.5 * hotter[0]


@pytest.mark.parametrize("value", [0.0, 1 / 64])
def test_overlay_of_even_heat_is_even(value: float) -> None:
    overlay = heat_overlay(torch.ones(3, 8, 8), torch.full((8, 8), value))
    assert len(overlay.flatten(1).unique(dim=1).T) == 1
