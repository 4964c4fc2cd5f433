"""A bandwidth with a gradient, and a kernel and a bandwidth of eq. 8's own."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from support import assert_near, oracle_route
from torchcaps import functional as F

METHODS = ("frms", "frem")
KERNELS = ("epanechnikov", "gaussian", F.Epanechnikov(clipped=True), F.Epanechnikov(clipped=False))
OPTIONS = [
    {"kernel": kernel, "distance": distance, "normalize": normalize}
    for kernel, distance, normalize in itertools.product(KERNELS, ("l1", "l2"), ("softmax", "sum"))
]


def sample() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Votes on both sides of a distance of 1, so that a clipped kernel has some inside and some outside."""
    g = torch.Generator().manual_seed(3)
    votes = 0.8 * torch.randn(4, 3, 2, generator=g, dtype=torch.float64)
    activation = 0.1 + torch.rand(4, generator=g, dtype=torch.float64)
    beta = 1 + 0.1 * torch.randn(3, 2, generator=g, dtype=torch.float64)
    return votes, activation, {"beta": beta, "beta0": 0.1 * torch.randn(3, generator=g, dtype=torch.float64)}


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_gradient(method: str, options: dict, iterations: int) -> None:
    votes, activation, parameters = sample()
    route = F.routing_method(method).route

    def routed(votes: Tensor, bandwidth: Tensor) -> tuple[Tensor, ...]:
        own = {"activation_kernel": "gaussian", "activation_bandwidth": 0.7}
        found = route(votes, activation, parameters, bandwidth=bandwidth, iterations=iterations, **own, **options)
        return found[:2]

    bandwidth = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(routed, (votes.requires_grad_(), bandwidth))
    if iterations > 1:
        (gradient,) = torch.autograd.grad(routed(votes, bandwidth)[0].square().sum(), bandwidth)
        assert gradient != 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_is_the_number_that_it_holds(method: str, options: dict) -> None:
    votes, activation, parameters = sample()
    route = F.routing_method(method).route
    found = route(votes, activation, parameters, bandwidth=torch.tensor(1.3, dtype=torch.float64), **options)
    # but in eq. 8, which then takes 1
    assert_close(found, route(votes, activation, parameters, bandwidth=1.3, activation_bandwidth=1.0, **options))


@pytest.mark.parametrize("own", [{"activation_kernel": "gaussian"}, {"activation_kernel": "epanechnikov"}, {}], ids=str)
@pytest.mark.parametrize("bandwidth", [None, 0.7])
@pytest.mark.parametrize("normalize", ["softmax", "sum"])
@pytest.mark.parametrize("method", METHODS)
def test_eq_8_with_options_of_its_own(method: str, normalize: str, bandwidth: float | None, own: dict) -> None:
    votes, activation, parameters = sample()
    options = {"normalize": normalize, "bandwidth": 1.3, "activation_bandwidth": bandwidth, **own}
    found = F.routing_method(method).route(votes, activation, parameters, **options)
    arrays = {name: value.numpy() for name, value in parameters.items()}
    assert_near(tuple(found), oracle_route(method, votes.numpy(), activation.numpy(), arrays, **options))


def test_softmax_of_the_log_mixture_coefficient_minus_the_distance() -> None:
    """softmax_j(log pi_j - d / h), with eq. 8 as in the paper: k(x) = 1 - x, not clipped, of bandwidth 1."""
    votes, activation, parameters = sample()
    h = 0.4
    pose = torch.einsum("i,ijd->jd", activation / activation.sum(), votes)
    pi = torch.full((3,), 1 / 3, dtype=torch.float64)
    for _ in range(2):
        r = torch.softmax(pi.log() - (votes - pose).abs().sum(-1) / h, -1)
        weight = r * activation[:, None]
        pose, pi = torch.einsum("ij,ijd->jd", weight / weight.sum(0), votes), r.mean(0)
    d = (votes - parameters["beta"] * pose).abs().sum(-1) + parameters["beta0"]
    a = torch.softmax((r * activation[:, None] * (1 - d)).sum(0), -1)
    options = {"kernel": "gaussian", "normalize": "sum", "bandwidth": h / 2, "iterations": 3}
    for kernel in ("epanechnikov", F.Epanechnikov(clipped=False)):
        own = {"activation_kernel": kernel, "activation_bandwidth": 1.0}
        found = F.routing_method("frem").route(votes, activation, parameters, **options, **own)
        assert_close(tuple(found), (pose, a, r))


@pytest.mark.parametrize("method", [F.frms, F.frem])
@pytest.mark.parametrize(
    ("bandwidth", "message"),
    [
        (torch.ones(1), r"torch\.float32 tensor of shape \[1\]: expected a number, or a floating-point tensor \[\]"),
        (torch.tensor(1), r"torch\.int64 tensor of shape \[\]"),
        (torch.tensor(0.0), r"bandwidth=0\.0"),
        (torch.tensor(float("nan")), "bandwidth=nan"),
        (torch.tensor(-2.0), r"bandwidth=-2\.0"),
    ],
)
def test_wrong_bandwidths(method: object, bandwidth: Tensor, message: str) -> None:
    votes, activation, _ = sample()
    with pytest.raises(ValueError, match=message):
        method(votes, activation, bandwidth=bandwidth)  # type: ignore[operator]


def test_torch_func() -> None:
    votes, activation, _ = sample()

    def size(bandwidth: Tensor) -> Tensor:
        return F.frem(votes, activation, bandwidth=bandwidth).pose.square().sum()

    some = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    expected = [torch.autograd.functional.jacobian(size, h) for h in some]
    assert_close(torch.func.vmap(torch.func.grad(size))(some), torch.stack(expected))
