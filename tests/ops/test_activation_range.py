"""Activations below 0: an error where they can be seen, elsewhere 0 in every backend."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from support import random_capsules
from torchcaps import functional as F
from torchcaps.nn import CapsuleConv2d
from torchcaps.ops.backend import use_backend
from torchcaps.types import Capsules

METHODS = F.list_routings()
USING = [name for name in METHODS if F.routing_method(name).uses_activation]


def layer_and_capsules(routing: str) -> tuple[CapsuleConv2d, Capsules]:
    torch.manual_seed(0)
    pose, activation = random_capsules(2, 3, 4, 4, dtype=torch.float32)
    activation[0, 1, 2, 2] = -0.25
    return CapsuleConv2d(3, 5, 2, stride=2, routing=routing, transform_std=0.5), Capsules(pose, activation)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("routing", USING)
def test_seen(routing: str, backend: str) -> None:
    layer, capsules = layer_and_capsules(routing)
    if backend == "native" and routing not in F.list_routings(native=True):
        pytest.skip("the core does not have it")
    with use_backend(backend), pytest.raises(ValueError, match=r"values down to -0\.25, expected none below 0"):
        layer(capsules)
    with pytest.raises(ValueError, match=r"values down to -0\.25"):
        F.objective(torch.zeros(2, 3, 4), torch.tensor([0.1, -0.25]), torch.zeros(3, 4), torch.ones(2, 3))


@pytest.mark.parametrize("routing", sorted(set(METHODS) - set(USING)))
def test_a_method_that_does_not_use_them(routing: str) -> None:
    layer, capsules = layer_and_capsules(routing)
    positive = Capsules(capsules.pose, torch.rand_like(capsules.activation))
    assert_close(tuple(layer(capsules)), tuple(layer(positive)))


def test_nan_is_left_to_whoever_watches_the_loss() -> None:
    layer, capsules = layer_and_capsules("frem")
    capsules.activation.fill_(float("nan"))
    assert layer(capsules).pose.isnan().any()


@pytest.mark.parametrize("routing", F.list_routings(native=True))
def test_unseen(routing: str) -> None:
    """A dispatch mode may have tensors without values, so that nobody looks: outputs and gradients are those at 0."""
    layer, capsules = layer_and_capsules(routing)
    off = Capsules(capsules.pose, capsules.activation.clamp(min=0))

    def results(backend: str, capsules: Capsules) -> list[Tensor]:
        leaves = [maps.detach().clone().requires_grad_() for maps in capsules]
        with use_backend(backend), FlopCounterMode(display=False):
            pose, activation = layer(Capsules(*leaves))
        loss = pose.square().sum() + activation[:, 0].sum()
        return [pose, activation, *torch.autograd.grad(loss, [*leaves, *layer.parameters()])]

    expected = results("reference", off)
    for backend in ("native", "reference"):
        for found, wanted in zip(results(backend, capsules), expected, strict=True):
            assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_exported() -> None:
    layer, capsules = layer_and_capsules("frem")
    off = Capsules(capsules.pose, capsules.activation.clamp(min=0))
    with use_backend("reference"), torch.no_grad():
        expected = tuple(layer(off))
        exported = torch.export.export(layer, (off,)).module()
    assert_close(tuple(exported(capsules)), expected)
