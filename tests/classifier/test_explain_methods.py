"""All methods of explanation: what they promise, known answers, and that they leave no trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from torchcaps.classifier import Classifier, Method, explain
from torchcaps.classifier.explain.evidence import gains
from torchcaps.classifier.explain.gradients import background
from torchcaps.classifier.explain.relevance import as_share
from torchcaps.classifier.explain.slopes import find_slopes, log_odds
from torchcaps.data import Split
from torchcaps.functional.registry import list_routings
from torchcaps.models import HybridNetwork
from torchcaps.types import Scores

Tiny = Callable[..., Classifier]
METHODS = get_args(Method)
OF_CNN = [method for method in METHODS if method != "votes"]


def check(classifier: Classifier, split: Split, method: Method) -> None:
    for explanation in explain(classifier, classifier.prepare(split), method):
        assert explanation.method == method
        assert explanation.heat.shape == (16, 16)
        for maps in (explanation.heat, *explanation.layers.values()):
            assert maps.isfinite().all()
            assert maps.min() >= 0
            assert float(maps.sum()) == pytest.approx(1, abs=1e-5)
        assert not explanation.heat.requires_grad


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("routing", list_routings())
def test_shares_of_every_routing_method(tiny: Tiny, split: Split, routing: str, method: Method) -> None:
    check(tiny(routing=routing), split.take(torch.arange(2)), method)


@pytest.mark.parametrize("method", METHODS)
def test_shares_of_other_networks(tiny: Tiny, split: Split, method: Method) -> None:
    few = split.take(torch.arange(2))
    check(tiny(in_channels=3, decoder=True), few, method)
    check(tiny(model="poolcaps32"), few, method)
    check(tiny(strides=(1, 2, 2), norm="batch"), few, method)
    stereo = Split(few.images.repeat(1, 2, 1, 1), few.labels)
    check(tiny(in_channels=2), stereo, method)
    if method != "votes":
        check(tiny(model="cnn32"), few, method)


@pytest.mark.parametrize("method", METHODS)
def test_an_image_of_one_colour(tiny: Tiny, method: Method) -> None:
    check(tiny(), Split(torch.full((1, 1, 20, 20), 7, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)), method)


class OnePlace(nn.Module):
    """Class 1 where the pixel (5, 10) is bright; nothing else counts."""

    num_classes, in_channels, image_size, has_capsules = 2, 1, 16, False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.first, self.last = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 2, 1)
        with torch.no_grad():
            for layer in (self.first, self.last):
                nn.init.zeros_(layer.bias)
                layer.weight.copy_(torch.tensor([1.0, -1.0][-len(layer.weight) :]).view_as(layer.weight).neg())
            self.first.weight.fill_(1.0)

    def forward(self, image: Tensor) -> Scores:
        features = self.first(image)
        mask = torch.zeros_like(features)
        mask[:, :, 5, 10] = self.weight
        logits = self.last(features * mask).sum((2, 3))
        return Scores(logits.softmax(1), logits)


@pytest.mark.parametrize("method", OF_CNN)
def test_one_place_decides(tiny: Tiny, method: Method) -> None:
    classifier = tiny(model="cnn32")
    classifier.network = OnePlace()  # type: ignore[assignment]
    image = torch.zeros(1, 20, 20, dtype=torch.uint8)
    image[0, 3:17, 3:17] = 90
    image[0, 7, 12] = 255  # the crop begins at (2, 2)
    [found] = explain(classifier, image, method)
    assert found.label == 1
    assert divmod(int(found.heat.argmax()), 16) == (5, 10)
    if method != "grad-cam":  # which weighs channels, not places
        assert found.heat[5, 10] == pytest.approx(1)


@pytest.mark.parametrize("method", METHODS)
def test_capsules_of_one_place_only(tiny: Tiny, method: Method) -> None:
    classifier = tiny()
    network = HybridNetwork((), num_classes=3, image_size=16, first_channels=16, transform_std=0.5)
    classifier.network = network  # class capsules on the pixels
    with torch.no_grad():
        network.primary.pose.weight.zero_()[:, :, 2, 2] = 1.0  # the pose is the pixel itself
        network.primary.activation.weight.fill_(1.0)
        network.primary.activation.bias.fill_(-20.0)  # next to no activation, unless the pixel is bright
    image = torch.zeros(1, 20, 20, dtype=torch.uint8)
    image[0, 7, 12] = 255
    [found] = explain(classifier, classifier.prepare(image), method)
    assert divmod(int(found.heat.argmax()), 16) == (5, 10)


@pytest.mark.parametrize(("model", "options"), [("hybrid32", {"routing": "frem", "transform_std": 2.0}), ("cnn32", {})])
def test_evidence_is_complete_at_every_site(tiny: Tiny, split: Split, model: str, options: dict[str, Any]) -> None:
    """The places of each site together make up what the log-odds gain from the flat image to this one."""
    classifier = tiny(model=model, **options).double()
    prepared = classifier.prepare(split).take(torch.arange(1))
    image = classifier.pipeline.evaluate(prepared.images, prepared.labels).image.double()
    label = torch.tensor([1])
    with torch.no_grad():
        flat = background(image).expand_as(image).contiguous()
        expected = log_odds(classifier(image), label) - log_odds(classifier(flat), label)  # [B]
    found = gains(classifier.network, image, label, steps=30)
    assert expected.abs() > 0.05  # so that there is something to make up
    assert next(iter(found)) == "image"
    assert len(found) > 2
    for gain in found.values():
        torch.testing.assert_close(gain.sum((1, 2)), expected, rtol=0.02, atol=0.0)


def test_background_is_the_median_of_the_edge() -> None:
    image = torch.rand(2, 3, 6, 8)
    image[:, :, 0] = image[:, :, -1] = torch.tensor([0.1, 0.2, 0.3]).view(3, 1)
    assert torch.equal(background(image), torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1).expand(2, 3, 1, 1))


def test_log_odds() -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0], [0.0, 90.0, 0.0]], dtype=torch.float64)
    output = Scores(logits.softmax(1), logits)
    share = output.activation[0, 2]
    found = log_odds(output, torch.tensor([2, 1]))
    assert float(found[0]) == pytest.approx(float(share.log() - (1 - share).log()), rel=1e-5)
    assert found.isfinite().all()


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e38])
def test_shares_of_tiny_and_huge_numbers(scale: float) -> None:
    maps = torch.tensor([[[1.0, 2.0], [0.0, 1.0]]])
    torch.testing.assert_close(as_share(scale * maps), maps / 4)


def test_even_shares_of_nothing() -> None:
    assert as_share(torch.zeros(1, 2, 2)).tolist() == [[[0.25, 0.25], [0.25, 0.25]]]


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.mark.parametrize("caller", [nothing, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", METHODS)
def test_no_trace_is_left(tiny: Tiny, split: Split, method: Method, caller: Callable[[], Iterator[None]]) -> None:
    classifier = tiny(norm="batch")
    few = split.take(torch.arange(2))
    expected = explain(classifier, classifier.prepare(few), method)
    classifier.train()
    first, second, *_ = classifier.parameters()
    first.grad, second.requires_grad = torch.ones_like(first), False
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    with caller():  # type: ignore[attr-defined]
        found = explain(classifier, classifier.prepare(few), method)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.heat, other.heat)
    assert all(part.training for part in classifier.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in classifier.modules())
    for name, value in classifier.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert first.grad.eq(1).all()
    for parameter in classifier.parameters():
        assert parameter.requires_grad == (parameter is not second)
        assert parameter.grad is None or parameter is first


def test_a_network_made_in_inference_mode(tiny: Tiny, split: Split) -> None:
    with torch.inference_mode():
        classifier = tiny()
        prepared = classifier.prepare(split).take(torch.arange(1))
        [found] = explain(classifier, prepared)
    [expected] = explain(tiny(), prepared)
    torch.testing.assert_close(found.heat, expected.heat)


def test_slopes_are_those_of_differences(tiny: Tiny, split: Split) -> None:
    classifier = tiny().double()
    prepared = classifier.prepare(split).take(torch.arange(1))
    image = classifier.pipeline.evaluate(prepared.images, prepared.labels).image.double()
    label = torch.tensor([1])
    slope = find_slopes(classifier.network, image, label)["image"].slopes[0]
    along = torch.randn(image.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def score(step: float) -> float:
        activation = classifier(image + step * along).activation[0].detach()
        return float(activation[1].log() - (activation[0] + activation[2]).log())

    expected = (score(1e-5) - score(-1e-5)) / 2e-5
    assert float((slope * along).sum()) == pytest.approx(expected, rel=1e-3)
