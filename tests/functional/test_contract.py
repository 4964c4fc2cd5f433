"""Names, options, shapes: what a wrong call is told, and what a user's own objects may be."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from torchcaps import functional as F
from torchcaps.functional.registry import register_routing
from torchcaps.types import Clusters, Routed

VOTES, ACTIVATION = torch.randn(4, 3, 16), torch.rand(4)


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
    ("arguments", "options", "error", "message"),
    [
        ((VOTES[0], ACTIVATION), {}, ValueError, r"votes have shape \[3, 16\].*\[\.\.\., I, J, D\]"),
        ((VOTES, ACTIVATION[:2]), {}, ValueError, r"activation has shape \[2\], expected \[4\]"),
        ((VOTES.int(), ACTIVATION), {}, TypeError, "votes are torch.int32"),
        ((VOTES, ACTIVATION.double()), {}, TypeError, "activation is torch.float64"),
        ((VOTES[:0], ACTIVATION[:0]), {}, ValueError, r"\[0, 3, 16\].*at least 1"),
        ((VOTES, ACTIVATION), {"iterations": 0}, ValueError, "iterations=0"),
        ((VOTES, ACTIVATION), {"iterations": 1.5}, ValueError, "iterations=1.5"),
        ((VOTES, ACTIVATION), {"kernel": "box"}, ValueError, "kernel='box'.*epanechnikov, gaussian"),
        ((VOTES, ACTIVATION), {"kernel": 3}, TypeError, "value, derivative, clipped"),
        ((VOTES, ACTIVATION), {"distance": "l3"}, ValueError, "distance='l3'.*l1, l2, inner"),
        ((VOTES, ACTIVATION), {"normalize": "max"}, ValueError, "normalize='max'.*softmax, sum"),
        ((VOTES, ACTIVATION), {"bandwidth": 0.0}, ValueError, "bandwidth=0.0"),
    ],
)
def test_wrong_calls(
    arguments: tuple[Tensor, Tensor], options: dict[str, object], error: type[Exception], message: str
) -> None:
    for method in (F.frms, F.frem):
        with pytest.raises(error, match=message):
            method(*arguments, **options)


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
    assert F.list_routings() == ["agreement", "em", "frem", "frms", "frms_variant"]
    assert F.list_routings(native=True) == ["em", "frem", "frms"]
    with pytest.raises(ValueError, match="routing='fram': expected one of agreement, em, frem"):
        F.routing_method("fram")
    with pytest.raises(ValueError, match="'frem' is registered already"):
        register_routing("frem", label="", algorithm=F.frem, parameters=lambda j, d: {})(lambda *_: None)
    with pytest.raises(TypeError, match="routing 'em' has no option 'kernel'; it has final_lambda, iterations"):
        F.routing_method("em").check_options({"kernel": "gaussian"})
