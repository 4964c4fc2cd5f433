"""The contract of routing for every registered method; what a wrong call is told; what a user's own objects may be."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from routing_contract import RoutingContract, random_field, route
from torchcaps import functional as F
from torchcaps.functional.registry import register_routing
from torchcaps.types import Clusters, Routed

VOTES, ACTIVATION = random_field(4, 3, 16, dtype=torch.float32)


class TestEveryMethod(RoutingContract):
    @pytest.fixture(params=F.list_routings())
    def name(self, request: pytest.FixtureRequest) -> str:
        return request.param


class Triangle:
    """A user's kernel: max(0, 1 - sqrt(x)), which has no closed form in the library."""

    clipped = True

    def value(self, x: Tensor) -> Tensor:
        return (1 - x.sqrt()).clamp(min=0)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, -0.5 / x.sqrt(), torch.zeros_like(x))


def test_named_results() -> None:
    clusters = F.frem(VOTES, ACTIVATION)
    assert isinstance(clusters, Clusters)
    assert clusters.pose.shape == (3, 16)
    assert clusters.coupling.shape == (4, 3)
    assert isinstance(F.em(VOTES, ACTIVATION, torch.zeros(3), torch.zeros(3)), Routed)


def test_users_own_kernel_and_distance() -> None:
    def manhattan(u: Tensor, v: Tensor) -> Tensor:
        return (u - v).abs().sum(-1)

    assert_close(F.frem(VOTES, ACTIVATION, distance=manhattan), F.frem(VOTES, ACTIVATION, distance="l1"))
    # mean shift by hand: one step from the weighted mean
    mean = torch.einsum("i,ijd->jd", ACTIVATION / ACTIVATION.sum(), VOTES)
    x = manhattan(VOTES, mean) / 50
    r = torch.softmax(1 / 3 + ACTIVATION[:, None] * (1 - x.sqrt()), -1)
    weight = r * ACTIVATION[:, None] / x.sqrt()
    expected = torch.einsum("ij,ijd->jd", weight / weight.sum(0), VOTES)
    assert_close(F.frms(VOTES, ACTIVATION, kernel=Triangle(), bandwidth=50.0).pose, expected)


def test_a_clipped_kernel_ends_at_one_whatever_it_computes() -> None:
    class Line:
        clipped = True

        def value(self, x: Tensor) -> Tensor:
            return 1 - x

        def derivative(self, x: Tensor) -> Tensor:
            return -torch.ones_like(x)

    for bandwidth in (1.0, 20.0):
        ours = F.frms(VOTES, ACTIVATION, kernel=Line(), bandwidth=bandwidth)
        assert_close(ours, F.frms(VOTES, ACTIVATION, kernel=F.Epanechnikov(clipped=True), bandwidth=bandwidth))


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("kernel", "box", ValueError, "kernel='box'.*epanechnikov, gaussian"),
        ("kernel", 3, TypeError, "value, derivative, clipped"),
        ("distance", "l3", ValueError, "distance='l3'.*l1, l2, inner"),
        ("normalize", "max", ValueError, "normalize='max'.*softmax, sum"),
        ("bandwidth", 0.0, ValueError, r"bandwidth=0\.0"),
        ("step", float("inf"), ValueError, "step=inf: expected a finite number"),
        ("activation_kernel", "box", ValueError, "activation_kernel='box'"),
        ("activation_bandwidth", -1.0, ValueError, r"activation_bandwidth=-1\.0"),
        ("final_lambda", "warm", ValueError, "final_lambda='warm'"),
        ("lambda_decay", float("nan"), ValueError, "lambda_decay=nan"),
        ("variance_floor", 0.0, ValueError, r"variance_floor=0\.0: expected a positive"),
    ],
)
def test_wrong_options(option: str, value: object, error: type[Exception], message: str) -> None:
    """Told by every method that has the option, before there is a vote and when there are some."""
    methods = [F.routing_method(name) for name in F.list_routings() if option in F.routing_method(name).options]
    assert methods
    for method in methods:
        with pytest.raises(error, match=message):
            method.check_options({option: value})
        with pytest.raises(error, match=message):
            route(method.name, VOTES, ACTIVATION, **{option: value})


def test_more_wrong_calls() -> None:
    with pytest.raises(ValueError, match=r"precision has shape \[2, 3\]"):
        F.Mahalanobis(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"beta_u has shape \[4\], expected \[3\]"):
        F.em(VOTES, ACTIVATION, torch.zeros(4), torch.zeros(3))
    pose, coupling = F.frem(VOTES, ACTIVATION)
    with pytest.raises(ValueError, match=r"beta has shape \[16\], expected \[3, 16\]"):
        F.capsule_activation(VOTES, ACTIVATION, coupling, pose, torch.ones(16), torch.zeros(3))
    with pytest.raises(ValueError, match=r"pose has shape \[16\], expected \[3, 16\]"):
        F.objective(VOTES, ACTIVATION, pose[0], coupling)
    with pytest.raises(TypeError, match=r"label is torch\.float32"):
        F.spread_loss(torch.rand(2, 3), torch.zeros(2), 0.5)
    with pytest.raises(ValueError, match=r"label has shape \[3\], expected \[2\]"):
        F.margin_loss(torch.rand(2, 3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"target \[1, 1, 3, 2\]"):
        F.reconstruction_loss(torch.rand(1, 1, 2, 3), torch.rand(1, 1, 3, 2))


def test_registry() -> None:
    assert {"em", "frem", "frms"} <= set(F.list_routings())  # the paper's two, and the one that it compares them with
    assert F.list_routings(native=True) == [n for n in F.list_routings() if F.routing_method(n).native]
    assert F.routing_method(F.routing_method("em")) is F.routing_method("em")
    with pytest.raises(ValueError, match="routing='fram': expected one of agreement, em, frem"):
        F.routing_method("fram")
    parts = {"label": "", "parameters": lambda j, d: {}, "check": lambda **_: None}
    with pytest.raises(ValueError, match="'frem' is registered already"):
        register_routing("frem", algorithm=F.frem, **parts)(lambda *_: None)
    with pytest.raises(TypeError, match="'mean' has no keyword-only argument 'iterations'"):
        register_routing("mean", algorithm=lambda votes: votes.mean(-3), **parts)(lambda *_: None)
    assert "mean" not in F.list_routings()
    with pytest.raises(TypeError, match="routing 'em' has no option 'kernel'; it has final_lambda, iterations"):
        F.routing_method("em").check_options({"kernel": "gaussian"})
