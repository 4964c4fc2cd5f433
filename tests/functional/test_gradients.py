"""Gradients in float64 against finite differences, at points away from the kinks of |x| and of the clip."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from support import method_options
from torchcaps import functional as F

ROUTES = method_options(
    kernel=("epanechnikov", "gaussian", F.Epanechnikov(clipped=True)),
    distance=("l1", "l2", "inner"),
    normalize=("softmax", "sum"),
)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize(("name", "options"), ROUTES, ids=str)
def test_every_input_of_every_method(name: str, options: dict[str, object], iterations: int) -> None:
    g = torch.Generator().manual_seed(3)
    i, j, d = 4, 3, 2
    method = F.routing_method(name)
    # 0.8: l1 distances on both sides of 1, so that a clipped kernel is inside and outside of its support
    votes = (0.8 * torch.randn(i, j, d, generator=g, dtype=torch.float64)).requires_grad_()
    activation = (0.1 + torch.rand(i, generator=g, dtype=torch.float64)).requires_grad_()
    starts = method.parameters(j, d).items()
    parameters = [
        (p.value + 0.1 * torch.randn(p.shape, generator=g, dtype=torch.float64)).requires_grad_() for _, p in starts
    ]

    def route(votes: Tensor, activation: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip((name for name, _ in starts), values, strict=True))
        return tuple(method.route(votes, activation, named, iterations=iterations, **options))

    assert gradcheck(route, (votes, activation, *parameters))


@pytest.mark.parametrize("loss", [lambda a, y: F.spread_loss(a, y, 0.7), F.margin_loss, F.activation_cross_entropy])
def test_losses(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    g = torch.Generator().manual_seed(0)
    activation = torch.rand(3, 4, generator=g, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a: loss(a, torch.tensor([0, 3, 1])), (activation,))


def test_l1_has_no_gradient_where_vote_and_pose_are_equal() -> None:
    votes = torch.ones(2, 1, 4, dtype=torch.float64, requires_grad=True)
    pose = torch.ones(1, 4, dtype=torch.float64)
    F.objective(votes, torch.ones(2, dtype=torch.float64), pose, torch.ones(2, 1, dtype=torch.float64)).backward()
    assert votes.grad is not None
    assert votes.grad.eq(0).all()
