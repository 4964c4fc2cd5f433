"""What must hold for any votes, whatever their values."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from torchcaps import functional as F
from torchcaps.types import Routed

EVERY_METHOD = pytest.mark.parametrize("name", F.list_routings())
Size = tuple[int, int, int]
seeds = st.integers(0, 2**31)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))


def votes_of(seed: int, size: Size) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=g, dtype=torch.float64), torch.rand(
        size[0], generator=g, dtype=torch.float64
    ) + 0.01


def route(name: str, votes: Tensor, activation: Tensor, **options: object) -> Routed:
    """Route with parameters that are the same for every output capsule, so that outputs can be permuted."""
    method = F.routing_method(name)
    starts = method.parameters(votes.shape[-2], votes.shape[-1])
    parameters = {key: torch.full(p.shape, p.value + 0.1, dtype=votes.dtype) for key, p in starts.items()}
    return method.route(votes, activation, parameters, **options)


@EVERY_METHOD
@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, iterations=st.integers(1, 4))
def test_coupling_sums_to_one_over_the_outputs(name: str, seed: int, size: Size, iterations: int) -> None:
    coupling = route(name, *votes_of(seed, size), iterations=iterations).coupling
    assert_close(coupling.sum(-1), torch.ones(size[0], dtype=torch.float64))


@EVERY_METHOD
def test_coupling_does_not_sum_to_one_over_the_inputs(name: str) -> None:
    coupling = route(name, *votes_of(0, (6, 3, 4))).coupling
    assert (coupling.sum(0) - 1).abs().max() > 0.1


@EVERY_METHOD
@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, iterations=st.integers(1, 3))
def test_order_of_inputs_does_not_matter(name: str, seed: int, size: Size, iterations: int) -> None:
    votes, activation = votes_of(seed, size)
    order = torch.randperm(size[0], generator=torch.Generator().manual_seed(seed))
    before = route(name, votes, activation, iterations=iterations)
    after = route(name, votes[order], activation[order], iterations=iterations)
    assert_close(after.pose, before.pose)
    assert_close(after.activation, before.activation)
    assert_close(after.coupling, before.coupling[order])


@EVERY_METHOD
@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, iterations=st.integers(1, 3))
def test_outputs_follow_their_order(name: str, seed: int, size: Size, iterations: int) -> None:
    votes, activation = votes_of(seed, size)
    order = torch.randperm(size[1], generator=torch.Generator().manual_seed(seed))
    before = route(name, votes, activation, iterations=iterations)
    after = route(name, votes[:, order], activation, iterations=iterations)
    assert_close(after.pose, before.pose[order])
    assert_close(after.activation, before.activation[order])
    assert_close(after.coupling, before.coupling[:, order])


@pytest.mark.parametrize(("name", "most"), [("frms", 4), ("frem", 2), ("em", 4)])
@pytest.mark.parametrize("normalize", ["softmax", "sum"])
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=seeds, size=st.tuples(st.integers(2, 6), st.integers(1, 5), st.integers(1, 4)))
def test_a_capsule_switched_off_has_no_vote(
    name: str, most: int, normalize: str, data: st.DataObject, seed: int, size: Size
) -> None:
    """FREM: up to two iterations, for its mixture coefficients count every input capsule."""
    votes, activation = votes_of(seed, size)
    options = {"iterations": data.draw(st.integers(1, most))} | ({} if name == "em" else {"normalize": normalize})
    activation[0] = 0
    off = route(name, votes, activation, **options)
    without = route(name, votes[1:], activation[1:], **options)
    assert_close(off.pose, without.pose)
    assert_close(off.activation, without.activation)
    assert_close(off.coupling[1:], without.coupling)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, normalize=st.sampled_from(["softmax", "sum"]))
def test_one_iteration_of_frms_and_frem_is_the_weighted_mean(seed: int, size: Size, normalize: str) -> None:
    votes, activation = votes_of(seed, size)
    mean = torch.einsum("i,ijd->jd", activation / activation.sum(), votes)
    for name in ("frms", "frem"):
        assert_close(route(name, votes, activation, iterations=1, normalize=normalize).pose, mean)


@pytest.mark.parametrize("name", ["frms", "frem", "em"])
@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, iterations=st.integers(1, 3))
def test_poses_shift_with_the_votes(name: str, seed: int, size: Size, iterations: int) -> None:
    votes, activation = votes_of(seed, size)
    shift = torch.randn(size[2], dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    before = route(name, votes, activation, iterations=iterations)
    after = route(name, votes + shift, activation, iterations=iterations)
    assert_close(after.pose, before.pose + shift)
    assert_close(after.coupling, before.coupling)


@EVERY_METHOD
def test_trace_ends_with_the_routing_itself(name: str) -> None:
    votes, activation = votes_of(1, (5, 3, 4))
    starts = F.routing_method(name).parameters(3, 4)
    parameters = {key: torch.full(p.shape, p.value, dtype=votes.dtype) for key, p in starts.items()}
    trace = F.trace_routing(name, votes, activation, parameters, iterations=3)
    assert len(trace) == 3
    expected = F.routing_method(name).route(votes, activation, parameters, iterations=3)
    for ours, wanted in zip(trace[-1], expected, strict=True):
        assert_close(ours, wanted, rtol=0, atol=0)


def test_algorithm_3_is_frms_with_an_inner_product_but_for_the_division() -> None:
    """k(1 - u.v) is u.v for the unclipped Epanechnikov kernel; with all activations 1, only step 2 differs."""
    votes = torch.randn(5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    variant = F.frms_variant(votes, iterations=1)
    frms = F.frms(votes, torch.ones(5, dtype=torch.float64), iterations=1, distance="inner")
    assert_close(variant.pose, frms.pose * variant.coupling.sum(0).unsqueeze(-1))
