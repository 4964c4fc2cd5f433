"""Every method against the independent NumPy twin, over random shapes, options and activations, to 1e-10."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracle
from torchcaps import functional as F

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
KERNELS = {
    "epanechnikov": "epanechnikov",
    "gaussian": "gaussian",
    "epanechnikov-clipped": F.Epanechnikov(clipped=True),
    "epanechnikov-unclipped": F.Epanechnikov(clipped=False),
}
DISTANCES = ("l1", "l2", "inner", "diagonal", "matrix")
DENSITY = list(itertools.product(KERNELS, DISTANCES, ("softmax", "sum")))


class Case:
    """Random votes with leading dimensions, and the options that both twins understand."""

    def __init__(self, lead: tuple[int, ...], i: int, j: int, d: int, seed: int, scale: float, iterations: int):
        g = torch.Generator().manual_seed(seed)
        self.votes = scale * torch.randn(*lead, i, j, d, generator=g, dtype=torch.float64)
        self.activation = torch.rand(*lead, i, generator=g, dtype=torch.float64)
        # a third of the capsules off: the degenerate rules are part of the contract
        self.activation[torch.rand(*lead, i, generator=g) < 1 / 3] = 0
        self.beta = torch.randn(j, d, generator=g, dtype=torch.float64)
        self.beta0 = torch.randn(j, generator=g, dtype=torch.float64)
        root = torch.randn(d, d, generator=g, dtype=torch.float64)
        self.precision = root @ root.mT
        self.iterations = iterations

    def fields(self) -> list[tuple[int, ...]]:
        return list(np.ndindex(*self.votes.shape[:-3]))

    def distance(self, name: str) -> tuple[object, object]:
        """The distance as the library takes it, and as the oracle does."""
        if name == "diagonal":
            return F.Mahalanobis(self.precision.diagonal()), ("mahalanobis", self.precision.diagonal().numpy())
        if name == "matrix":
            return F.Mahalanobis(self.precision), ("mahalanobis", self.precision.numpy())
        return name, name

    def compare(self, results: tuple[Tensor, ...], expected: list[tuple[np.ndarray, ...]]) -> None:
        for field, wanted in zip(self.fields(), expected, strict=True):
            for ours, theirs in zip(results, wanted, strict=True):
                np.testing.assert_allclose(ours[field].numpy(), theirs, **TOLERANCE)


cases = st.builds(
    Case,
    lead=st.sampled_from([(), (2,), (2, 1, 2)]),
    i=st.integers(1, 6),
    j=st.integers(1, 4),
    d=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.05, 0.4, 0.9]),  # larger ones underflow in the oracle, which takes no logarithms
    iterations=st.integers(1, 4),
)


@pytest.mark.parametrize(("kernel", "distance", "normalize"), DENSITY)
@settings(max_examples=8, deadline=None)
@given(case=cases, bandwidth=st.sampled_from([1.0, 0.7, 3.0]), step=st.sampled_from([1.0, 0.3]))
def test_density_methods(kernel: str, distance: str, normalize: str, case: Case, bandwidth: float, step: float) -> None:
    ours, theirs = case.distance(distance)
    options = {"normalize": normalize, "bandwidth": bandwidth}
    mine = {"kernel": KERNELS[kernel], "distance": ours, **options}
    other = {"kernel": kernel, "distance": theirs, **options}
    votes, activation = case.votes, case.activation
    for method, extra in (("frms", {"step": step}), ("frem", {})):
        extra = {"iterations": case.iterations, **extra}
        pose, coupling = getattr(F, method)(votes, activation, **mine, **extra)
        a = F.capsule_activation(votes, activation, coupling, pose, case.beta, case.beta0, **mine)
        f = F.objective(votes, activation, pose, coupling, **mine)
        expected = []
        for field in case.fields():
            u, a_in = votes[field].numpy(), activation[field].numpy()
            v, r = getattr(oracle, method)(u, a_in, **other, **extra)
            a_out = oracle.capsule_activation(u, a_in, r, v, case.beta.numpy(), case.beta0.numpy(), **other)
            expected.append((v, r, a_out, oracle.objective(u, a_in, v, r, **other)))
        case.compare((pose, coupling, a, f), expected)


@settings(max_examples=60, deadline=None)
@given(case=cases)
def test_em(case: Case) -> None:
    beta_u, beta_a = case.beta[:, 0], case.beta0
    routed = F.em(case.votes, case.activation, beta_u, beta_a, iterations=case.iterations, final_lambda=0.3)
    likelihood = F.em_log_likelihood(case.votes, case.activation, routed)
    expected = []
    for field in case.fields():
        u, a = case.votes[field].numpy(), case.activation[field].numpy()
        v, a_out, r = oracle.em(u, a, beta_u.numpy(), beta_a.numpy(), iterations=case.iterations, final_lambda=0.3)
        expected.append((v, a_out, r, oracle.em_log_likelihood(u, a, v, a_out, r)))
    case.compare((*routed, likelihood), expected)


@pytest.mark.parametrize("method", ["agreement", "frms_variant"])
@settings(max_examples=30, deadline=None)
@given(case=cases)
def test_methods_without_input_activation(method: str, case: Case) -> None:
    routed = getattr(F, method)(case.votes, iterations=case.iterations)
    expected = [getattr(oracle, method)(case.votes[f].numpy(), iterations=case.iterations) for f in case.fields()]
    case.compare(routed, expected)


@settings(max_examples=50, deadline=None)
@given(
    batch=st.integers(1, 5),
    classes=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    margin=st.floats(0.0, 1.0),
)
def test_losses(batch: int, classes: int, seed: int, margin: float) -> None:
    g = torch.Generator().manual_seed(seed)
    activation = torch.rand(batch, classes, generator=g, dtype=torch.float64)
    label = torch.randint(classes, (batch,), generator=g)
    image, target = torch.rand(2, batch, 2, 3, 4, generator=g, dtype=torch.float64)
    arrays = activation.numpy(), label.numpy()
    assert F.spread_loss(activation, label, margin).item() == pytest.approx(oracle.spread_loss(*arrays, margin))
    assert F.margin_loss(activation, label).item() == pytest.approx(oracle.margin_loss(*arrays))
    wanted = oracle.activation_cross_entropy(*arrays)
    assert F.activation_cross_entropy(activation, label).item() == pytest.approx(wanted)
    expected = oracle.reconstruction_loss(image.numpy(), target.numpy())
    assert F.reconstruction_loss(image, target).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("epochs", "margins"),
    [  # by hand, for 20 steps per epoch: from 0.2 at step 0 to 0.9 after 5 epochs, or 0.3 of all if those are fewer
        (50, {0: 0.2, 1: 0.207, 50: 0.55, 99: 0.893, 100: 0.9, 101: 0.9, 999: 0.9}),
        (17, {0: 0.2, 50: 0.55, 100: 0.9}),
        (10, {0: 0.2, 15: 0.375, 30: 0.55, 60: 0.9, 199: 0.9}),
        (1, {0: 0.2, 3: 0.55, 6: 0.9, 19: 0.9}),
    ],
)
def test_spread_margin(epochs: int, margins: dict[int, float]) -> None:
    assert {step: F.spread_margin(step, steps_per_epoch=20, epochs=epochs) for step in margins} == pytest.approx(
        margins
    )
