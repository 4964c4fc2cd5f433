"""What must hold for any votes, whatever their values."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from routing_contract import random_field, route
from support import method_options
from torchcaps import functional as F

Size = tuple[int, int, int]
seeds = st.integers(0, 2**31)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))


@pytest.mark.parametrize(
    ("name", "options"), method_options("frms", "frem", "em", normalize=("softmax", "sum")), ids=str
)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=seeds, size=st.tuples(st.integers(2, 6), st.integers(1, 5), st.integers(1, 4)))
def test_a_capsule_switched_off_has_no_vote(
    name: str, options: dict[str, object], data: st.DataObject, seed: int, size: Size
) -> None:
    """FREM: up to two iterations, for its mixture coefficients count every input capsule."""
    votes, activation = random_field(*size, seed=seed)
    options = {**options, "iterations": data.draw(st.integers(1, 2 if name == "frem" else 4))}
    activation[0] = 0
    off = route(name, votes, activation, **options)
    without = route(name, votes[1:], activation[1:], **options)
    assert_close(off.pose, without.pose)
    assert_close(off.activation, without.activation)
    assert_close(off.coupling[1:], without.coupling)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, normalize=st.sampled_from(["softmax", "sum"]))
def test_one_iteration_of_frms_and_frem_is_the_weighted_mean(seed: int, size: Size, normalize: str) -> None:
    votes, activation = random_field(*size, seed=seed)
    mean = torch.einsum("i,ijd->jd", activation / activation.sum(), votes)
    for name in ("frms", "frem"):
        assert_close(route(name, votes, activation, iterations=1, normalize=normalize).pose, mean)


@pytest.mark.parametrize("name", ["frms", "frem", "em"])
@settings(max_examples=20, deadline=None)
@given(seed=seeds, size=sizes, iterations=st.integers(1, 3))
def test_poses_shift_with_the_votes(name: str, seed: int, size: Size, iterations: int) -> None:
    votes, activation = random_field(*size, seed=seed)
    shift = torch.randn(size[2], dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    before = route(name, votes, activation, iterations=iterations)
    after = route(name, votes + shift, activation, iterations=iterations)
    assert_close(after.pose, before.pose + shift)
    assert_close(after.coupling, before.coupling)


def test_algorithm_3_is_frms_with_an_inner_product_but_for_the_division() -> None:
    """k(1 - u.v) is u.v for the unclipped Epanechnikov kernel; with all activations 1, only step 2 differs."""
    votes = torch.randn(5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    variant = F.frms_variant(votes, iterations=1)
    frms = F.frms(votes, torch.ones(5, dtype=torch.float64), iterations=1, distance="inner")
    assert_close(variant.pose, frms.pose * variant.coupling.sum(0).unsqueeze(-1))
