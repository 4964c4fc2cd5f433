"""Never a NaN: finite outputs and gradients in float32 for the inputs that break routing code elsewhere."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from support import method_options
from torchcaps import functional as F
from torchcaps.functional.weights import relative_weights
from torchcaps.types import Routed

OPTIONS = {
    "kernel": ("epanechnikov", "gaussian", F.Epanechnikov(clipped=True)),
    "distance": ("l1", "l2"),
    "normalize": ("softmax", "sum"),
}
EVERY_METHOD = pytest.mark.parametrize(("name", "options"), method_options(**OPTIONS), ids=str)


def assert_finite(name: str, options: dict[str, object], votes: Tensor, activation: Tensor, iterations: int) -> None:
    method = F.routing_method(name)
    votes, activation = votes.clone().requires_grad_(), activation.clone().requires_grad_()
    starts = method.parameters(votes.shape[-2], votes.shape[-1])
    parameters = {key: torch.full(p.shape, p.value, requires_grad=True) for key, p in starts.items()}
    leaves = {"votes": votes, "activation": activation, **parameters}
    if "bandwidth" in method.options:
        leaves["bandwidth"] = torch.ones((), requires_grad=True)
        options = {**options, "bandwidth": leaves["bandwidth"]}
    routed = method.route(votes, activation, parameters, iterations=iterations, **options)
    for key, value in routed._asdict().items():
        assert value.isfinite().all(), key
    weights = [torch.linspace(-1, 1, value.numel()).reshape(value.shape) for value in routed]
    sum((w * value).sum() for w, value in zip(weights, routed, strict=True)).backward()
    for key, leaf in leaves.items():
        assert leaf.grad is None or leaf.grad.isfinite().all(), f"gradient of {key}"


@EVERY_METHOD
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_random_votes_of_any_size(name: str, options: dict[str, object], scale: float) -> None:
    g = torch.Generator().manual_seed(int(scale * 1e6) % 2**31)
    for iterations, (i, j) in itertools.product((1, 2, 3, 10), ((1, 1), (1, 4), (7, 1), (7, 4))):
        votes = scale * torch.randn(3, i, j, 16, generator=g)
        assert_finite(name, options, votes, torch.rand(3, i, generator=g), iterations)


@EVERY_METHOD
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_zero_and_nearly_zero_activations(name: str, options: dict[str, object], scale: float) -> None:
    g = torch.Generator().manual_seed(0)
    votes = scale * torch.randn(5, 3, 16, generator=g)
    some = torch.tensor([0.0, 1.0, 0.0, 0.3, 0.0])
    nearly_off = torch.tensor([2e-39, 0.2, 1e-38, 0.3, 1e-32])  # as a softmax leaves them
    for iterations, activation in itertools.product((1, 2, 5), (torch.zeros(5), some, nearly_off, 1e-37 * some)):
        assert_finite(name, options, votes, activation, iterations)


@EVERY_METHOD
def test_zero_and_identical_votes(name: str, options: dict[str, object]) -> None:
    g = torch.Generator().manual_seed(0)
    alike = torch.randn(1, 1, 16, generator=g).expand(5, 3, 16)
    for iterations, votes in itertools.product((1, 2, 10), (torch.zeros(5, 3, 16), alike, 1e-6 * alike)):
        assert_finite(name, options, votes, torch.rand(5, generator=g), iterations)
    for iterations in (1, 2):  # ties at large scale: the true gradient of more iterations leaves float32
        assert_finite(name, options, 1e6 * alike, torch.rand(5, generator=g), iterations)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_capsules_that_are_off_in_any_precision(dtype: torch.dtype) -> None:
    """A vote of weight 0 whose logarithm is far above that of the others."""
    log_weight = torch.tensor([[0.0], [-60.0]], dtype=dtype)
    activation = torch.tensor([0.0, 1.0], dtype=dtype, requires_grad=True)
    weight = relative_weights(log_weight, activation)
    assert weight.flatten().tolist() == [0.0, 1.0]
    weight.sum().backward()
    assert activation.grad is not None
    assert activation.grad.isfinite().all()


def test_a_softmax_that_underflows_keeps_the_ratio_of_its_weights() -> None:
    """Output 1 is so far from every vote that its coupling is 0 in float32; its pose is still their weighted mean."""
    votes = torch.zeros(2, 2, 1)
    votes[:, 1, 0] = torch.tensor([4e4, -4e4])
    pose, coupling = F.frem(votes, torch.tensor([0.5, 0.5]), iterations=2)
    assert coupling[:, 1].eq(0).all()
    assert pose[1, 0] == 0


def test_without_any_weight_the_first_pose_is_zero_and_later_ones_stay() -> None:
    votes = torch.tensor([0.0, 10.0]).reshape(2, 1, 1)
    off = F.frem(votes, torch.zeros(2), iterations=3)
    assert off.pose.eq(0).all()
    # both votes are farther than the bandwidth from their mean: the clipped kernel leaves no weight in iteration 2
    clipped = F.frms(votes, torch.ones(2), iterations=2, kernel=F.Epanechnikov(clipped=True))
    assert clipped.pose.item() == 5.0


@pytest.mark.parametrize("route", [F.frem, F.frms, F.em])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(route: Callable[..., Routed], value: float) -> None:
    generator = torch.Generator().manual_seed(0)
    votes, activation = torch.randn(6, 3, 16, generator=generator), torch.rand(6, generator=generator)
    activation[2] = value
    costs = {"beta_u": torch.zeros(3), "beta_a": torch.zeros(3)} if route is F.em else {}
    assert not route(votes, activation, **costs).pose.isfinite().any()


@pytest.mark.parametrize(
    "activation",
    [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1e-45, 0.0, 1e-38], [1e-38, 1e-38, 1.0], [0.0, 1e-38, 0.0], [1e30, 0.0, 1e30]],
    ids=str,
)
@pytest.mark.parametrize("target", [0, 1, 2])
def test_cross_entropy_of_activations_that_underflow(activation: list[float], target: int) -> None:
    leaf = torch.tensor([activation, [0.2, 0.3, 0.5]], requires_grad=True)
    loss = F.activation_cross_entropy(leaf, torch.tensor([target, 0]))
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad is not None
    assert leaf.grad.square().isfinite().all()  # as an optimiser keeps it
    assert leaf.grad[0, target] <= 0  # towards the target, or nowhere


def test_cross_entropy_of_a_softmax_is_that_of_its_logits() -> None:
    logits = 5 * torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    label = torch.arange(7) % 4
    wanted = torch.nn.functional.cross_entropy(logits, label)
    torch.testing.assert_close(F.activation_cross_entropy(logits.softmax(1), label), wanted)
    assert F.activation_cross_entropy(torch.zeros(2, 4), label[:2]).item() == pytest.approx(math.log(4))
