"""Where float32 has little to spare: votes that are large against their differences, and votes that are alone."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import oracle
from torchcaps.functional import routing_method
from torchcaps.ops import dispatch, native, reference
from torchcaps.ops.backend import use_backend
from torchcaps.ops.window import Window
from torchcaps.types import Capsules


@pytest.fixture(params=["auto", "baseline"], autouse=True)
def _vector_path(request: pytest.FixtureRequest) -> Iterator[None]:
    native.core.set_vector_path(request.param)
    yield
    native.core.set_vector_path("auto")


def field(method: str, activation: list[float], outputs: int, *, scale: float, seed: int) -> dict[str, Tensor]:
    """The arguments of one field, whose input capsules have these activations, and poses of this scale."""
    g = torch.Generator().manual_seed(seed)
    inputs = len(activation)
    values = {
        "pose": scale * torch.randn(1, 16 * inputs, 1, 1, generator=g),
        "activation": torch.tensor(activation).reshape(1, inputs, 1, 1),
        "weight": 0.3 * torch.randn(inputs, outputs, 4, 4, generator=g),
    }
    starts = routing_method(method).parameters(outputs, 16)
    return values | {name: torch.full(start.shape, start.value) for name, start in starts.items()}


def run(
    route: object, method: str, iterations: int, values: dict[str, Tensor], dtype: torch.dtype, **options: object
) -> dict[str, Tensor]:
    """Outputs and gradients by name, in float64."""
    leaves = {name: value.to(dtype, copy=True).requires_grad_() for name, value in values.items()}
    routed = route(  # type: ignore[operator]
        Capsules(leaves["pose"], leaves["activation"]),
        leaves["weight"],
        {name: leaves[name] for name in list(leaves)[3:]},
        window=Window((1, 1), (1, 1), (0, 0)),
        method=routing_method(method),
        options={"iterations": iterations, **options},
    )
    g = torch.Generator().manual_seed(1)
    loss = sum((value * torch.randn(value.shape, generator=g)).sum() for value in routed[:2])
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    found = {f"gradient of {name}": value for name, value in zip(leaves, gradients, strict=True)}
    found |= {"out pose": routed[0].detach(), "out activation": routed[1].detach()}
    return {name: value.double() for name, value in found.items()}


def natively(method: str, iterations: int, values: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    with use_backend("native"):
        return run(dispatch.route_map, method, iterations, values, torch.float32, **options)


@pytest.mark.parametrize("activation", [0.8, 1e-20])
@pytest.mark.parametrize("iterations", [2, 3])
def test_one_vote_under_a_narrow_kernel_is_the_mean(iterations: int, activation: float) -> None:
    """All others underflow beside the nearest one: rounded otherwise, the mean would be far from it for the kernel."""
    narrow = {"kernel": "gaussian", "distance": "l2"}
    for seed in range(5):
        values = field("frms", [activation] * 6, 4, scale=1e5, seed=seed)
        found = natively("frms", iterations, values, **narrow)
        expected = run(reference.route_map, "frms", iterations, values, torch.float64, **narrow)
        assert all(value.isfinite().all() for value in found.values())
        for name in ("out pose", "gradient of pose", "gradient of weight"):
            scale = expected[name].abs().max().item()
            assert_close(found[name], expected[name], rtol=0, atol=1e-3 * scale, msg=name)


@pytest.mark.parametrize("others", [0.0, 1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_em_of_large_votes_of_which_one_has_nearly_all_weight(iterations: int, others: float) -> None:
    """Their standard deviation, 1e-4 or less, is below the rounding of their mean, some 100."""
    for seed in range(5):
        values = field("em", [others, 0.8, *(0.5 * others for _ in range(6))], 5, scale=100, seed=seed)
        found = natively("em", iterations, values)
        expected = run(reference.route_map, "em", iterations, values, torch.float64)

        # the votes as the core makes them, in float32: their rounding is no fault of the routing
        pose, weight = values["pose"].reshape(8, 1, 4, 4), values["weight"]
        votes = (pose.double() @ weight.double()).reshape(8, 5, 16).numpy()
        activation, zero = values["activation"].flatten().numpy(), np.zeros(5)
        by_oracle = oracle.em(votes, activation, zero, zero, iterations)
        for name, wanted in zip(("out pose", "out activation"), by_oracle[:2], strict=True):
            assert_close(expected[name].flatten(), torch.from_numpy(wanted).flatten(), rtol=1e-9, atol=1e-9)
        for name, wanted in expected.items():
            # three iterations multiply a rounding by the inverse of a variance twice; it was off by 0.1 to 100
            error = (found[name] - wanted).abs().max() / wanted.abs().max()
            assert error < 1e-3, f"{name}, seed {seed}: off by {error:.1e}, normwise"


@pytest.mark.parametrize("method", ["frms", "frem"])
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("activation", [[0.7], [0.0, 0.0, 0.3], [0.0] * 9 + [1e-15]], ids=str)
def test_a_single_vote_is_the_pose(method: str, iterations: int, activation: list[float]) -> None:
    """Exactly: beside it, the l1 distance of eq. 8 has a slope of 1 or -1 in each dimension, at it none."""
    for seed, outputs in enumerate((1, 3, 8, 11)):
        values = field(method, activation, outputs, scale=1.0, seed=seed)
        single = run(reference.route_map, method, iterations, values, torch.float32)
        expected = run(reference.route_map, method, iterations, values, torch.float64)
        for found in (natively(method, iterations, values), single):
            assert found["gradient of beta"].eq(0).all()
            for name, wanted in expected.items():
                size = wanted.abs().max().clamp(min=1.0).item()
                assert_close(
                    found[name], wanted, rtol=0, atol=1e-5 * size, msg=lambda text, name=name: f"{name}: {text}"
                )
