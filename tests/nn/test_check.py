"""The comparison of backends with the reference: that it sees what is wrong, and nothing else."""

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from torchcaps.functional import list_routings, routing_method, trace_routing
from torchcaps.functional.activation import activation_density
from torchcaps.nn import ClassCapsules, RoutedLayer, check
from torchcaps.ops import native
from torchcaps.ops.backend import BACKENDS
from torchcaps.ops.window import Window, gather_fields
from torchcaps.types import Capsules

needs_core = pytest.mark.skipif(native.core is None, reason="needs the native core")


class WrongCore:
    """The native core, with something done to what one of its functions has written."""

    def __init__(self, function: str, spoil: Any) -> None:
        self.core, self.function, self.spoil = native.core, function, spoil

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.core, name)

        def spoilt(*arguments: Any) -> Any:
            real(*arguments)
            self.spoil(*arguments)

        return spoilt if name == self.function else real


def compare(layer: str, method: str) -> check.Comparison:
    [case] = [case for case in check.cases() if (case.layer, case.method) == (layer, method)]
    return check.compare_case(case, "cpu", "native")


@needs_core
def test_the_native_core_passes_and_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    core = mock.Mock(wraps=native.core)
    monkeypatch.setattr(native, "core", core)
    found = list(check.compare("cpu", "native"))
    assert [failure for comparison in found for failure in comparison.failures] == []
    assert not [c.layer for c in found if c.refused]
    assert {c.method for c in found} == {*(routing_method(name).label for name in list_routings(native=True)), ""}
    called = {name for name, *_ in core.method_calls}
    assert called >= {f"{part}{way}" for part in ("", "primary_", "residual_") for way in ("forward", "backward")}


@needs_core
def test_all_gradients_are_compared_and_none_is_trivial() -> None:
    for case in check.cases():
        exact, _ = check.exact_and_rounded(case.layer, case.method)
        expected = {"pose", "activation", *(f"gradient of {name}" for name in case.inputs)}
        assert set(exact) == expected | {f"gradient of {name}" for name, _ in case.module.named_parameters()}
        for name, value in exact.items():
            assert value.abs().max() > 1e-5, (case.layer, case.method, name)
    names = {name for case in check.cases() for name, _ in case.module.named_parameters()}
    assert names >= {"weight", "beta", "beta0", "beta_u", "beta_a", "log_bandwidth", "conv.weight"}


def distances_to_kinks(case: check.Case) -> Iterator[Tensor]:
    """|u - v| of every vote to every pose that FREM and FRMS compare it with: rounding may choose the side at 0."""
    layer = case.module
    assert isinstance(layer, RoutedLayer)
    if layer.method.name == "em":
        return
    pose, activation = (case.inputs[name].double() for name in ("pose", "activation"))
    weight, window = layer.weight.detach().double(), getattr(layer, "window", None)
    offset: Tensor | float = 0.0
    if isinstance(layer, ClassCapsules):
        window = Window((pose.shape[2], pose.shape[3]), (1, 1), (0, 0))
        weight = weight.repeat(math.prod(pose.shape[2:]), 1, 1, 1) if layer.shared else weight
        if layer.coordinates:
            offset = layer.vote_offset(*pose.shape[2:]).double().unsqueeze(-2)
    fields, active = gather_fields(Capsules(pose, activation), window)
    votes = torch.einsum("...iab,ijbc->...ijac", fields, weight).flatten(-2) + offset
    options = {**layer.method.options, **layer.routing_options}
    if layer.log_bandwidth is not None:
        options["bandwidth"] = layer.log_bandwidth.detach().double().exp()
    parameters = {name: getattr(layer, name).detach().double() for name in layer.parameter_names}
    trace = trace_routing(layer.method, votes, active, parameters, **options)
    assert not activation_density(**options)[0].clipped
    for center in (*(routed.pose for routed in trace[:-1]), parameters["beta"] * trace[-1].pose):
        yield (votes - center.unsqueeze(-3)).abs()


def test_no_vote_is_where_rounding_decides() -> None:
    for case in check.cases():
        if case.method:
            for distance in distances_to_kinks(case):
                near = distance[distance > 0].min()  # votes of padding are 0 on every device
                assert near > 1e-6, (case.layer, case.method, near)


@needs_core
def test_a_wrong_gradient_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(*arguments: Any) -> None:
        grad_weight = next(a for a in arguments[5:] if isinstance(a, Tensor) and a.shape == arguments[2].shape)
        grad_weight[0, 0, 0, 0] += 1e-3 * grad_weight.abs().max()

    monkeypatch.setattr(native, "core", WrongCore("backward", spoil))
    [failure] = compare("3x3, overlapping", "FRMS").failures
    assert failure.startswith("native on cpu: FRMS 3x3, overlapping: gradient of weight is off by 1.0e-03, allowed ")


@needs_core
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_are_not_finite(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(*arguments: Any) -> None:
        arguments[5].view(-1)[0] = number  # the poses that come out

    monkeypatch.setattr(native, "core", WrongCore("forward", spoil))
    found = compare("2x2 fields", "EM")
    assert "native on cpu: EM 2x2 fields: pose is not finite" in found.failures
    assert found.worst.differs


@needs_core
def test_an_error_is_a_failure_and_a_refusal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(*arguments: Any) -> None:
        raise RuntimeError("out of resources\nmore of it")

    with monkeypatch.context() as patch:
        patch.setattr(native, "core", WrongCore("forward", spoil))
        assert compare("class capsules", "FREM").failures == [
            "native on cpu: FREM class capsules: raised RuntimeError: out of resources"
        ]
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(native, "MISSING", "not built (for this test)")
    found = list(check.compare("cpu", "native"))
    assert all("not built (for this test)" in comparison.refused for comparison in found)
    assert not any(comparison.failures for comparison in found)


def test_which_backends_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check.here()[0] == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert check.here()[:2] == ["cpu", "cuda"]
    others = [name for name in BACKENDS if name not in ("auto", "compiled", "reference")]
    assert check.backends("cpu", compiled=False) == others
    assert set(check.backends("cuda", compiled=True)) == {*others, "compiled", "reference"}
    monkeypatch.setattr(check, "BACKENDS", ("auto", "new", "reference"))
    assert check.backends("cpu", compiled=False) == ["new"]


def test_tf32_is_off_while_it_runs() -> None:
    before = torch.backends.cudnn.allow_tf32
    with check.full_precision():
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before


def test_the_callers_random_numbers_stay() -> None:
    check.cases.cache_clear()
    before = torch.get_rng_state()
    check.cases()
    assert torch.get_rng_state().equal(before)
