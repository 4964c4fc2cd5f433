"""The native core against the reference in float64: outputs, and every gradient by name."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from support import threads
from torchcaps.functional import Epanechnikov, list_routings, routing_method, trace_routing
from torchcaps.functional.activation import activation_density
from torchcaps.functional.distances import l1, resolve_distance
from torchcaps.functional.em import weighted_variance
from torchcaps.functional.kernels import resolve_kernel
from torchcaps.ops import dispatch, native, reference
from torchcaps.ops.backend import use_backend
from torchcaps.ops.window import Window, gather_fields
from torchcaps.types import Capsules

# float32 carries 24 bits (6e-8). A vote is a sum of 4 products and a pose a mean of up to some 40 of them; logits of a
# few units multiply an error by as much in each iteration, and gradients go through all of them twice: normwise that
# leaves about 1e-5 on these shapes. EM multiplies it by the inverse of a variance in each iteration, so where the
# reference itself loses more in float32, the core may lose several times that.
TOLERANCE, TIMES_THE_REFERENCE = 1e-4, 10
# In these, terms of 1 to 10 cancel (all of them do for a single vote): errors are compared with 1, not with the rest.
CANCELLING = ("gradient of activation", "gradient of pose", "gradient of weight", "gradient of bandwidth")
# Closer than this to a kink (u = v under l1, x = 1 of a clipped kernel), rounding may choose the other side's gradient.
KINK = 2e-5
LEAST_VARIANCE = 1e-3


@dataclass
class Case:
    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    window: Window
    method: str
    options: dict[str, object]
    seed: int
    activity: float = 1.0  # the largest activation
    learned: bool = False  # the bandwidth is a tensor, with a gradient
    shifted: bool = False  # the votes, by numbers of each input capsule

    def arguments(self, dtype: torch.dtype) -> dict[str, Tensor]:
        g = torch.Generator().manual_seed(self.seed)
        kh, kw = self.window.kernel_size
        values = {
            "pose": torch.randn(self.batch, 16 * self.inputs, self.height, self.width, generator=g),
            "activation": 0.1 + 0.9 * torch.rand(self.batch, self.inputs, self.height, self.width, generator=g),
            "weight": 0.3 * torch.randn(kh * kw * self.inputs, self.outputs, 4, 4, generator=g),
        }
        # some capsules off, or nearly: they must neither vote nor upset the shift of the logarithms
        draw = torch.rand(values["activation"].shape, generator=g)
        values["activation"] = values["activation"] * (draw > 0.2) * self.activity + 2e-38 * (draw < 0.1)
        for name, start in routing_method(self.method).parameters(self.outputs, 16).items():
            values[name] = start.value + 0.2 * torch.randn(start.shape, generator=g)
        if self.learned:
            values["bandwidth"] = torch.tensor(self.options["bandwidth"])
        return {name: value.to(dtype).requires_grad_() for name, value in values.items()}

    def offset(self, dtype: torch.dtype) -> Tensor | None:
        kh, kw = self.window.kernel_size
        g = torch.Generator().manual_seed(self.seed + 2)
        return 0.5 * torch.randn(kh * kw * self.inputs, 16, generator=g).to(dtype) if self.shifted else None

    def run(self, route: object, arguments: dict[str, Tensor]) -> dict[str, Tensor]:
        """Outputs and gradients by name."""
        parameters = {name: arguments[name] for name in list(arguments)[3:]}
        routed = route(  # type: ignore[operator]
            Capsules(arguments["pose"], arguments["activation"]),
            arguments["weight"],
            parameters,
            window=self.window,
            method=routing_method(self.method),
            options={**self.options, "bandwidth": arguments["bandwidth"]} if self.learned else self.options,
            vote_offset=self.offset(arguments["pose"].dtype),
        )
        pose, activation = routed[:2]
        g = torch.Generator().manual_seed(self.seed + 1)
        loss = (pose * torch.randn(pose.shape, generator=g)).sum()
        loss = loss + (activation * torch.randn(activation.shape, generator=g)).sum()
        gradients = torch.autograd.grad(loss, list(arguments.values()), materialize_grads=True)
        found = {f"gradient of {name}": value for name, value in zip(arguments, gradients, strict=True)}
        return {"out pose": pose, "out activation": activation, **found}

    def is_well_conditioned(self) -> bool:
        """Whether float32 can be right: no |u - v| near 0 under l1, no |x - 1| near 0 under a clipped kernel, in any
        iteration or in eq. 8; in EM no small variance, for an error in a vote divided by it is one in a logit.
        """
        a = {name: value.detach() for name, value in self.arguments(torch.float64).items()}
        pose, activation = gather_fields(Capsules(a["pose"], a["activation"]), self.window)
        votes = torch.einsum("...iab,ijbc->...ijac", pose, a["weight"]).flatten(-2)
        if (offset := self.offset(torch.float64)) is not None:
            votes = votes + offset.unsqueeze(-2)
        options = {**routing_method(self.method).options, **self.options}
        parameters = {name: a[name] for name in list(a)[3:]}
        trace = trace_routing(self.method, votes, activation, parameters, **options)
        if self.method == "em":
            weights = [routed.coupling * activation.unsqueeze(-1) for routed in trace]
            one = torch.ones(())
            found = [weighted_variance(votes, r.pose, w, one, 0.0) for r, w in zip(trace, weights, strict=True)]
            return min(variance.min().item() for variance in found) > LEAST_VARIANCE
        couplings = resolve_kernel(options["kernel"], options["normalize"]), options["bandwidth"]
        d = resolve_distance(options["distance"])
        centers = [(routed.pose, torch.zeros(()), *couplings) for routed in trace[:-1]]
        centers.append((a["beta"] * trace[-1].pose, a["beta0"], *activation_density(**options)))
        nearest = math.inf
        for center, offset, kernel, bandwidth in centers:
            if d is l1:
                nearest = min(nearest, (votes - center.unsqueeze(-3)).abs().min().item())
            if kernel.clipped:
                x = (d(votes, center.unsqueeze(-3)) + offset) / bandwidth
                nearest = min(nearest, (x - 1).abs().min().item())
        return nearest > KINK


@st.composite
def cases(draw: st.DrawFn) -> Case:
    method = draw(st.sampled_from(list_routings(native=True)))
    options: dict[str, object] = {"iterations": draw(st.integers(1, 4))}
    learned = False
    if method == "em":
        options["final_lambda"] = draw(st.sampled_from([0.01, 0.5]))
        options["lambda_decay"] = draw(st.sampled_from([0.95, 0.5]))
    else:
        kernels = ["epanechnikov", "gaussian", Epanechnikov(clipped=True), Epanechnikov(clipped=False)]
        options |= {
            "kernel": draw(st.sampled_from(kernels)),
            "distance": draw(st.sampled_from(["l1", "l2"])),
            "normalize": draw(st.sampled_from(["softmax", "sum"])),
            "bandwidth": draw(st.sampled_from([1.0, 6.0, 20.0])),
            "activation_kernel": draw(st.sampled_from([None, *kernels])),
            # not None where the bandwidth is learned: is_well_conditioned sees a number
            "activation_bandwidth": draw(
                st.sampled_from([1.0, 9.0] if (learned := draw(st.booleans())) else [None, 9.0])
            ),
        }
        if method == "frms":
            options["step"] = draw(st.sampled_from([1.0, 0.5]))
    kernel, stride, padding = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 3), (1, 3), (0, 1))
    )
    return Case(
        batch=draw(st.integers(1, 3)),
        height=draw(st.integers(kernel[0], 6)),
        width=draw(st.integers(kernel[1], 6)),
        inputs=draw(st.integers(1, 5)),
        outputs=draw(st.integers(1, 19)),  # on both sides of one and two vectors of 8
        window=Window(kernel, stride, padding),
        method=method,
        options=options,
        seed=draw(st.integers(0, 2**31)),
        learned=learned,
        shifted=draw(st.booleans()),
    )


@contextmanager
def vector_path(name: str) -> Iterator[None]:
    native.core.set_vector_path(name)
    try:
        yield
    finally:
        native.core.set_vector_path("auto")


def assert_equal_to_reference(case: Case, memory_format: torch.memory_format, backend: str = "native") -> None:
    expected = case.run(reference.route_map, case.arguments(torch.float64))
    rounded = case.run(reference.route_map, case.arguments(torch.float32))
    arguments = case.arguments(torch.float32)
    for name in ("pose", "activation"):
        arguments[name] = arguments[name].detach().contiguous(memory_format=memory_format).requires_grad_()
    with use_backend(backend):
        found = case.run(dispatch.route_map, arguments)
    for name, wanted in expected.items():
        assert found[name].isfinite().all(), name
        size = wanted.abs().max().clamp(min=1.0 if name in CANCELLING else 1e-2)
        error, unavoidable = ((value[name] - wanted).abs().max() / size for value in (found, rounded))
        assert error < max(TOLERANCE, TIMES_THE_REFERENCE * unavoidable), f"{name}: off by {error:.1e}, normwise"


@pytest.mark.parametrize("path", ["auto", "baseline"])
@settings(max_examples=150, deadline=None)
@given(case=cases(), count=st.integers(1, 3), channels_last=st.booleans())
def test_outputs_and_gradients(path: str, case: Case, count: int, channels_last: bool) -> None:
    assume(case.is_well_conditioned())
    with threads(count), vector_path(path):
        assert_equal_to_reference(case, torch.channels_last if channels_last else torch.contiguous_format)


@pytest.mark.parametrize("method", ["frms", "frem"])
@pytest.mark.parametrize(
    "kernel", ["epanechnikov", "gaussian", Epanechnikov(clipped=True), Epanechnikov(clipped=False)]
)
@pytest.mark.parametrize("normalize", ["softmax", "sum"])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_learned_bandwidth(method: str, kernel: object, normalize: str, iterations: int) -> None:
    for distance, bandwidth in (("l1", 9.0), ("l2", 12.0)):  # clipped kernels have votes on both sides
        options = {"iterations": iterations, "kernel": kernel, "distance": distance, "normalize": normalize}
        options |= {"bandwidth": bandwidth, "activation_kernel": "epanechnikov", "activation_bandwidth": 5.0}
        window = Window((2, 2), (2, 2), (0, 0))
        tries = (Case(1, 2, 4, 3, 5, window, method, options, seed, learned=True) for seed in range(50))
        case = next(case for case in tries if case.is_well_conditioned())
        assert_equal_to_reference(case, torch.channels_last)
        gradient = case.run(reference.route_map, case.arguments(torch.float64))["gradient of bandwidth"]
        assert (gradient != 0) == (iterations > 1)


@pytest.mark.parametrize("method", list_routings(native=True))
def test_a_class_layer_whose_votes_exceed_the_scratch(method: str) -> None:
    options: dict[str, object] = {"iterations": 2} | ({} if method == "em" else {"distance": "l2", "bandwidth": 50.0})
    case = Case(2, 9, 9, 16, 24, Window((9, 9), (1, 1), (0, 0)), method, options, seed=0)
    votes = 9 * 9 * 16 * 24 * 16 * 4
    assert votes > 1.5e6  # bytes; more than one tile
    assert_equal_to_reference(case, torch.channels_last)


@pytest.mark.parametrize("method", list_routings(native=True))
@pytest.mark.parametrize("activity", [1e-6, 1e-10, 1e-15])
def test_capsules_that_are_hardly_there(method: str, activity: float) -> None:
    """Then the gradient by the activation of one that is off is as large as that by the others is."""
    case = Case(2, 4, 4, 4, 6, Window((2, 2), (2, 2), (0, 0)), method, {"iterations": 2}, seed=3, activity=activity)
    assert case.is_well_conditioned()
    assert_equal_to_reference(case, torch.channels_last)


@pytest.mark.parametrize("method", list_routings(native=True))
def test_empty_batch(method: str) -> None:
    case = Case(0, 4, 4, 2, 3, Window((2, 2), (2, 2), (0, 0)), method, {"iterations": 2}, seed=0)
    with use_backend("native"):
        found = case.run(dispatch.route_map, case.arguments(torch.float32))
    assert found["out pose"].shape == (0, 2, 2, 3, 16)
    assert found["gradient of weight"].eq(0).all()
