"""Never a NaN in the native core either: the cases of tests/functional/test_finite.py, as maps."""

import itertools

import pytest
import torch
from torch import Tensor

from support import method_options
from torchcaps.functional import Epanechnikov, list_routings, routing_method
from torchcaps.nn import ClassCapsules
from torchcaps.ops import native
from torchcaps.ops.backend import use_backend
from torchcaps.types import Capsules

OPTIONS = method_options(
    *list_routings(native=True),
    kernel=("epanechnikov", "gaussian", Epanechnikov(clipped=True)),
    distance=("l1", "l2"),
    normalize=("softmax", "sum"),
)


@pytest.fixture(params=["auto", "baseline"], autouse=True)
def _vector_path(request: pytest.FixtureRequest):
    native.core.set_vector_path(request.param)
    yield
    native.core.set_vector_path("auto")


def assert_finite(routing: str, options: dict, pose: Tensor, activation: Tensor, outputs: int, iterations: int) -> None:
    """A map of one place, so that its capsules are the input capsules of one field."""
    pose = pose.reshape(len(pose), -1, 1, 1).clone().requires_grad_()
    activation = activation.reshape(len(pose), -1, 1, 1).clone().requires_grad_()
    learns = "bandwidth" in routing_method(routing).options
    options = {**options, "routing": routing, "transform_std": 0.5, "learn_bandwidth": learns}
    layer = ClassCapsules(activation.shape[1], outputs, 1, iterations=iterations, **options)
    with use_backend("native"):
        routed = layer(Capsules(pose, activation))
    for value in routed:
        assert value.isfinite().all()
    weights = [torch.linspace(-1, 1, value.numel()).reshape(value.shape) for value in routed]
    sum((w * value).sum() for w, value in zip(weights, routed, strict=True)).backward()
    for name, leaf in {"pose": pose, "activation": activation, **dict(layer.named_parameters())}.items():
        assert leaf.grad.isfinite().all(), f"gradient of {name}"


@pytest.mark.parametrize(("routing", "options"), OPTIONS, ids=str)
def test_finite_outputs_and_gradients(routing: str, options: dict) -> None:
    g = torch.Generator().manual_seed(0)
    for scale, iterations, (i, j) in itertools.product(
        (1e-6, 1e-3, 1.0, 1e3, 1e6), (1, 2, 3, 10), ((1, 1), (1, 4), (7, 1), (7, 9))
    ):
        torch.manual_seed(i + j)
        assert_finite(
            routing, options, scale * torch.randn(3, i, 16, generator=g), torch.rand(3, i, generator=g), j, iterations
        )
    some = torch.tensor([[0.0, 1.0, 0.0, 0.3, 0.0]])
    nearly_off = torch.tensor([[2e-39, 0.2, 1e-38, 0.3, 1e-32]])  # as a softmax leaves them
    activations = (0 * some, some, nearly_off, 1e-37 * some)
    for scale, iterations, activation in itertools.product((1e-6, 1.0, 1e3, 1e6), (1, 2, 5), activations):
        assert_finite(routing, options, scale * torch.randn(1, 5, 16, generator=g), activation, 3, iterations)
    for iterations, pose in itertools.product((1, 2, 10), (torch.zeros(1, 5, 16), torch.ones(1, 5, 16))):
        assert_finite(routing, options, pose, torch.rand(1, 5, generator=g), 3, iterations)
