"""Bytes and operations of the bounds, counted another way on small layers."""

import random
from pathlib import Path

import pytest
import torch

from bench.test_flops import Counted, add, make_votes, numbers, route_by_density, route_by_em
from experiments.tools.gpu_bounds import (
    PASSES,
    Gpu,
    Work,
    compiled,
    fused,
    map_bytes,
    markdown,
    sweeps,
    sweeps_back,
    vote_bytes,
)
from experiments.tools.vote_passes import passes
from torchcaps import use_backend
from torchcaps.bench.workloads import LayerShape
from torchcaps.nn import CapsuleConv2d
from torchcaps.ops import reference
from torchcaps.ops.triton.launch import MOST_PROGRAMS
from torchcaps.types import Capsules

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
LAYER = LayerShape("x", 2, 4, 6, 6, 8, 3, (48, 2, 3), (3, 2, 3))
BATCH = 5


def test_bytes_are_those_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = CapsuleConv2d(2, 3)
    capsules = Capsules(torch.randn(BATCH, 32, 4, 6).requires_grad_(), torch.rand(BATCH, 2, 4, 6).requires_grad_())
    votes: list[torch.Tensor] = []
    einsum = torch.einsum

    def recorded(*arguments: object) -> torch.Tensor:
        votes.append(einsum(*arguments))
        return votes[-1]

    monkeypatch.setattr(reference.torch, "einsum", recorded)
    with use_backend("reference"):
        outputs = layer(capsules)
    upstream = [torch.randn_like(output) for output in outputs]
    sources = [*capsules, layer.weight]
    gradients = torch.autograd.grad(outputs, sources, upstream)

    def size(*tensors: torch.Tensor) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    assert vote_bytes(LAYER, BATCH) == size(*votes)
    forward = size(*sources, *outputs)
    backward = size(*sources, *outputs, *upstream, *gradients)
    assert map_bytes(LAYER, BATCH, "forward") == fused("em", LAYER, BATCH, "forward").moved == forward
    assert map_bytes(LAYER, BATCH, "backward") == backward
    assert BATCH * LAYER.fields < MOST_PROGRAMS
    workspace = 2 * BATCH * LAYER.fields * size(layer.weight)  # one sum per field, written and read again
    assert fused("em", LAYER, BATCH, "backward").moved == backward + workspace
    assert compiled("em", LAYER, BATCH, "forward").moved == forward + 8 * size(*votes)
    assert compiled("em", LAYER, BATCH, "forward", training=False).moved == forward + 5 * size(*votes)
    assert compiled("frem", LAYER, BATCH, "backward").moved == backward + 13 * size(*votes)


@pytest.mark.parametrize(("method", "times", "back"), [("frem", 3, 3), ("frms", 3, 3), ("em", 4, 2)])
def test_operations_are_those_of_the_algorithm(method: str, times: int, back: int) -> None:
    """Two iterations: two means and the activation, or two means and two variances, each with votes of its own.

    Backward all of these again, and then each in reverse; of EM one sweep per iteration.
    """
    random.seed(0)
    inputs, outputs, fields = LAYER.inputs, LAYER.outputs, BATCH * LAYER.fields

    def count(votes: int, routings: int) -> int:
        Counted.done = 0
        for _ in range(routings):
            if method == "em":
                route_by_em(inputs, outputs, 2)
            else:
                route_by_density(method, inputs, outputs, 2)
        for _ in range(votes):
            make_votes(inputs, outputs)
        return fields * Counted.done

    assert (sweeps(method), sweeps_back(method)) == (times, back)
    assert fused(method, LAYER, BATCH, "forward").flops == count(times - 1, 1)
    assert fused(method, LAYER, BATCH, "backward").flops == count(times + back - 1, 3)
    assert compiled(method, LAYER, BATCH, "forward").flops == count(0, 1)
    assert compiled(method, LAYER, BATCH, "backward").flops == count(0, 2)


def test_the_votes_gradients_are_twice_the_votes() -> None:
    """Where the rule that each operation counts as two is exact, and where most of the operations are."""
    random.seed(0)
    Counted.done = 0
    make_votes(1, 1)
    votes, Counted.done = Counted.done, 0
    pose, weight, grad = numbers(4, 4), numbers(4, 4), numbers(4, 4)
    for a in range(4):
        for b in range(4):
            add(grad[a][c] * weight[b][c] for c in range(4))  # of the pose
            add(pose[c][a] * grad[c][b] for c in range(4))  # of the matrix
    assert Counted.done == 2 * votes


def test_the_bound_is_the_longer_of_the_two() -> None:
    gpu = Gpu("x", bandwidth=10.0, peak=100.0)
    assert Work(moved=20, flops=100).bound(gpu) == 2.0
    assert Work(moved=20, flops=300).bound(gpu) == 3.0


def test_the_page_shows_what_the_command_prints() -> None:
    shown = PAGE.read_text().split("<!-- python -m experiments.tools.gpu_bounds -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == markdown()


@pytest.mark.slow
@pytest.mark.parametrize("method", list(PASSES))
def test_passes_over_the_votes(method: str) -> None:
    assert passes(method) == PASSES[method]
