"""What every routing method has to do, whatever it computes. A subclass has these tests, and a fixture ``name``."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from torchcaps import functional as F
from torchcaps.types import Routed

SIZES = ((1, 1, 1), (1, 4, 3), (6, 1, 2), (5, 3, 4), (3, 2, 16))  # I, J, D


def random_field(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Votes ``[..., I, J, D]``, and activations ``[..., I]`` in (0, 1)."""
    g = torch.Generator().manual_seed(seed)
    votes = torch.randn(*size, generator=g, dtype=torch.float64)
    return votes.to(dtype), (0.01 + 0.98 * torch.rand(size[:-2], generator=g, dtype=torch.float64)).to(dtype)


def fields() -> Iterator[tuple[Tensor, Tensor, int]]:
    """Votes, activations, and a number of iterations."""
    for (seed, size), iterations in itertools.product(enumerate(SIZES), (1, 2, 4)):
        yield *random_field(*size, seed=seed), iterations


def parameters_of(name: str, votes: Tensor) -> dict[str, Tensor]:
    """The same for every output capsule, so that outputs can be permuted; beside the start, which may be special."""
    starts = F.routing_method(name).parameters(*votes.shape[-2:])
    return {key: torch.full(start.shape, start.value + 0.1, dtype=votes.dtype) for key, start in starts.items()}


def route(name: str, votes: Tensor, activation: Tensor, **options: Any) -> Routed:
    """Route with parameters that are the same for every output capsule."""
    return F.routing_method(name).route(votes, activation, parameters_of(name, votes), **options)


class RoutingContract:
    def test_shapes_and_types(self, name: str) -> None:
        for dtype, lead in itertools.product((torch.float32, torch.float64), ((), (2,), (2, 1, 3))):
            routed = route(name, *random_field(*lead, 5, 3, 4, dtype=dtype))
            assert isinstance(routed, Routed)
            assert [tuple(value.shape) for value in routed] == [(*lead, 3, 4), (*lead, 3), (*lead, 5, 3)]
            assert all(value.dtype == dtype for value in routed)

    def test_fields_do_not_know_of_each_other(self, name: str) -> None:
        votes, activation = random_field(4, 5, 3, 2)
        together = route(name, votes, activation)
        for k in range(4):
            assert_close(tuple(value[k] for value in together), tuple(route(name, votes[k], activation[k])))

    def test_coupling_sums_to_one_over_the_outputs(self, name: str) -> None:
        for votes, activation, iterations in fields():
            total = route(name, votes, activation, iterations=iterations).coupling.sum(-1)
            assert_close(total, torch.ones_like(total))
        assert (route(name, *random_field(6, 3, 4)).coupling.sum(0) - 1).abs().max() > 0.1  # and not over the inputs

    def test_order_of_inputs_does_not_matter(self, name: str) -> None:
        for votes, activation, iterations in fields():
            order = torch.arange(len(votes)).flip(0)
            before = route(name, votes, activation, iterations=iterations)
            after = route(name, votes[order], activation[order], iterations=iterations)
            assert_close(tuple(after), (before.pose, before.activation, before.coupling[order]))

    def test_outputs_follow_their_order(self, name: str) -> None:
        for votes, activation, iterations in fields():
            order = torch.arange(votes.shape[1]).flip(0)
            before = route(name, votes, activation, iterations=iterations)
            after = route(name, votes[:, order], activation, iterations=iterations)
            assert_close(tuple(after), (before.pose[order], before.activation[order], before.coupling[:, order]))

    @pytest.mark.parametrize("iterations", [1, 2, 3])
    def test_gradients(self, name: str, iterations: int) -> None:
        votes, activation = random_field(4, 3, 2, seed=3)
        named = parameters_of(name, votes)
        leaves = [leaf.requires_grad_() for leaf in (0.8 * votes, activation, *named.values())]

        def routed(votes: Tensor, activation: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
            given = dict(zip(named, values, strict=True))
            return tuple(F.routing_method(name).route(votes, activation, given, iterations=iterations))

        assert gradcheck(routed, leaves)
        pose, out_activation, _ = routed(*leaves)
        loss = (pose * torch.linspace(-1, 1, pose.numel()).reshape(pose.shape)).sum() + out_activation[0]
        of_votes, of_activation, *others = torch.autograd.grad(loss, leaves, materialize_grads=True)
        assert of_votes.abs().max() > 0
        assert (of_activation.abs().max() > 0) == F.routing_method(name).uses_activation
        for key, gradient in zip(named, others, strict=True):
            assert gradient.abs().max() > 0, f"{key} has no part in the result"

    def test_whether_it_uses_activations(self, name: str) -> None:
        votes, activation = random_field(5, 3, 4)
        method = F.routing_method(name)
        changed = route(name, votes, activation.flip(0)).pose
        assert torch.equal(changed, route(name, votes, activation).pose) != method.uses_activation
        if method.uses_activation:
            with pytest.raises(ValueError, match=r"activation has values down to -0\.5, expected none below 0"):
                route(name, votes, torch.full_like(activation, -0.5))

    def test_finite_whatever_the_votes_are(self, name: str) -> None:
        for scale, iterations, (i, j) in itertools.product(
            (1e-6, 1e-3, 1.0, 1e3, 1e6), (1, 2, 5), ((1, 1), (1, 4), (7, 1), (7, 4))
        ):
            votes, activation = random_field(3, i, j, 16, dtype=torch.float32)
            off = torch.where(torch.arange(i) % 2 == 0, 0.0, activation)
            for given in (activation, off, torch.zeros_like(off)):
                leaves = [(scale * votes).requires_grad_(), given.clone().requires_grad_()]
                routed = route(name, *leaves, iterations=iterations)
                assert all(value.isfinite().all() for value in routed)
                loss = routed.pose.sum() + routed.activation[..., 0].sum()
                gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
                assert all(gradient.isfinite().all() for gradient in gradients)

    def test_options(self, name: str) -> None:
        method = F.routing_method(name)
        method.check_options({})  # its defaults are good ones, and those that it routes by
        votes, activation = random_field(5, 3, 4)
        assert_close(tuple(route(name, votes, activation, **method.options)), tuple(route(name, votes, activation)))
        with pytest.raises(TypeError, match=f"routing '{name}' has no option 'colour'; it has .*iterations"):
            method.check_options({"colour": "red"})
        for wrong in (0, -1, 1.5, True):
            for check in (method.check_options, lambda options: route(name, votes, activation, **options)):
                with pytest.raises(ValueError, match=f"iterations={wrong}: expected a whole number of at least 1"):
                    check({"iterations": wrong})

    def test_wrong_votes(self, name: str) -> None:
        votes, activation = random_field(4, 3, 16)
        for wrong, error, message in (
            (votes[0], ValueError, r"votes have shape \[3, 16\].*\[\.\.\., I, J, D\]"),
            (votes[:0], ValueError, r"\[0, 3, 16\].*at least 1"),
            (votes.int(), TypeError, r"votes are torch\.int32"),
        ):
            with pytest.raises(error, match=message):
                route(name, wrong, activation)
        if F.routing_method(name).uses_activation:
            with pytest.raises(ValueError, match=r"activation has shape \[2\], expected \[4\]"):
                route(name, votes, activation[:2])
            with pytest.raises(TypeError, match=r"activation is torch\.float32"):
                route(name, votes, activation.float())

    def test_trace_ends_with_the_routing_itself(self, name: str) -> None:
        votes, activation = random_field(5, 3, 4, seed=1)
        trace = F.trace_routing(name, votes, activation, parameters_of(name, votes), iterations=3)
        assert len(trace) == 3
        assert_close(tuple(trace[-1]), tuple(route(name, votes, activation, iterations=3)), rtol=0, atol=0)
