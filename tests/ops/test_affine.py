"""The affine of the routed poses: fused natively without gradients, differentiable with them, in every backend."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from torchcaps import Capsules, use_backend
from torchcaps.functional import list_routings, routing_method
from torchcaps.nn import CapsuleConv2d, record_routing
from torchcaps.ops import dispatch, native, reference
from torchcaps.ops.window import Window

WINDOW = Window((2, 2), (2, 2), (0, 0))


def tensors(method: str, dtype: torch.dtype = torch.float32, outputs: int = 5) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    values = {
        "pose": torch.randn(3, 48, 4, 6, generator=g),
        "activation": torch.rand(3, 3, 4, 6, generator=g),
        "weight": 0.3 * torch.randn(12, outputs, 4, 4, generator=g),
        "scale": 1 + 0.5 * torch.randn(16 * outputs, generator=g),
        "shift": torch.randn(16 * outputs, generator=g),
    }
    for name, start in routing_method(method).parameters(outputs, 16).items():
        values[name] = start.value + 0.2 * torch.randn(start.shape, generator=g)
    return {name: value.to(dtype).requires_grad_() for name, value in values.items()}


def route(run: object, method: str, t: dict[str, Tensor], *, affine: bool = True) -> tuple[Tensor, Tensor]:
    routed = run(  # type: ignore[operator]
        Capsules(t["pose"], t["activation"]),
        t["weight"],
        {name: t[name] for name in list(t)[5:]},
        window=WINDOW,
        method=routing_method(method),
        options={"iterations": 3},
        affine=(t["scale"], t["shift"]) if affine else None,
    )
    return routed[0], routed[1]


def operators(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the native operators, as they are called."""
    called: list[str] = []
    for name in ("route", "route_affine"):
        own = getattr(native, name)
        monkeypatch.setattr(native, name, lambda *a, own=own, name=name: (called.append(name), own(*a))[1])
    return called


@pytest.mark.parametrize("method", list_routings())
def test_the_reference_transforms_the_pose_and_not_the_activation(method: str) -> None:
    t = tensors(method, torch.float64)
    plain, activation = route(reference.route_map, method, t, affine=False)
    pose, same = route(reference.route_map, method, t)
    assert torch.equal(same, activation)
    for j in range(5):
        for d in range(16):
            expected = t["scale"][16 * j + d] * plain[..., j, d] + t["shift"][16 * j + d]
            assert_close(pose[..., j, d], expected, rtol=0, atol=0)


@pytest.mark.parametrize("method", list_routings(native=True))
@pytest.mark.parametrize("outputs", [5, 8, 19])
@pytest.mark.parametrize("path", ["auto", "baseline"])
def test_fused_equals_the_reference(method: str, outputs: int, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t, called = tensors(method, outputs=outputs), operators(monkeypatch)
    native.core.set_vector_path(path)
    try:
        with torch.no_grad(), use_backend("native"):
            found = route(dispatch.route_map, method, t)
            _, activation = route(dispatch.route_map, method, t, affine=False)
    finally:
        native.core.set_vector_path("auto")
    assert called == ["route_affine", "route"]
    assert torch.equal(found[1], activation)
    expected = route(reference.route_map, method, tensors(method, torch.float64, outputs))
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", list_routings(native=True))
def test_gradients_equal_the_reference(method: str) -> None:
    found, expected = {}, {}
    for results, run, dtype in (
        (expected, reference.route_map, torch.float64),
        (found, dispatch.route_map, torch.float32),
    ):
        t = tensors(method, dtype)
        with use_backend("native"):
            pose, activation = route(run, method, t)
        ramp = torch.linspace(-1, 1, pose.numel(), dtype=dtype)
        loss = (pose.flatten() * ramp).sum() + (activation.flatten() * ramp[: activation.numel()]).sum()
        results.update(zip(t, torch.autograd.grad(loss, list(t.values())), strict=True))
    for name, gradient in expected.items():
        size = gradient.abs().max().item()
        assert_close(found[name].double() / size, gradient / size, rtol=0, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
def test_compiled_equals_the_reference() -> None:
    t = {name: value.detach() for name, value in tensors("frem").items()}
    with use_backend("compiled"):
        assert_close(route(dispatch.route_map, "frem", t), route(reference.route_map, "frem", t)[:2])


def test_fused_only_where_no_gradient_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    t, called = {name: value.detach() for name, value in tensors("frem").items()}, operators(monkeypatch)
    with use_backend("native"):
        fused, _ = route(dispatch.route_map, "frem", t)
        for name in ("pose", "scale", "shift", "beta"):
            apart, _ = route(dispatch.route_map, "frem", {**t, name: t[name].clone().requires_grad_()})
            assert_close(apart.detach(), fused)
    assert called == ["route_affine"] + 4 * ["route"]


@pytest.mark.parametrize("method", list_routings(native=True))
def test_opcheck(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: list[tuple] = []
    with monkeypatch.context() as patch, torch.no_grad(), use_backend("native"):
        own = native.route_affine
        patch.setattr(native, "route_affine", lambda *a: (inputs.append(a), own(*a))[1])
        route(dispatch.route_map, method, {name: value.detach() for name, value in tensors(method).items()})
    torch.library.opcheck(native.route_affine, inputs[0])


def test_wrong_sizes_are_refused() -> None:
    t = tensors("frem")
    for name in ("scale", "shift"):
        wrong = {**t, name: t[name][:-1]}
        with torch.no_grad(), use_backend("native"), pytest.raises(ValueError, match=f"{name}: got shape .79."):
            route(dispatch.route_map, "frem", wrong)


class Transformed(CapsuleConv2d):
    """A layer that normalises its poses, as small as it can be."""

    def __init__(self) -> None:
        super().__init__(3, 5)
        values = tensors("frem")
        self.scale = torch.nn.Parameter(values["scale"].detach())
        self.shift = torch.nn.Parameter(values["shift"].detach())

    def forward(self, capsules: Capsules) -> Capsules:
        pose, activation = self.route(self.check(capsules), self.weight, self.window, affine=(self.scale, self.shift))
        return Capsules(pose.flatten(3).permute(0, 3, 1, 2), activation.permute(0, 3, 1, 2))


def test_a_layer_compiles_to_one_graph_without_gradients() -> None:
    layer, capsules = Transformed(), Capsules(torch.randn(2, 48, 4, 4), torch.rand(2, 3, 4, 4))
    with torch.no_grad(), use_backend("native"):
        assert_close(torch.compile(layer, fullgraph=True)(capsules), layer(capsules))


def test_records_are_of_the_poses_as_routed() -> None:
    layer, capsules = Transformed(), Capsules(torch.randn(2, 48, 4, 4), torch.rand(2, 3, 4, 4))
    with record_routing(layer) as records:
        recorded = layer(capsules)
    with use_backend("reference"):
        plain = CapsuleConv2d.forward(layer, capsules)
        assert_close(recorded, layer(capsules))
    [[routed]] = records.values()
    assert_close(routed.pose.flatten(3), plain.pose.permute(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    layer, capsules = Transformed(), Capsules(torch.randn(2, 48, 4, 4), torch.rand(2, 3, 4, 4))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            expected = layer.float()(capsules)
            found = layer.to(dtype)(Capsules(*(maps.to(dtype) for maps in capsules)))
        assert found.pose.dtype == dtype
        assert_close(found.pose.float(), expected.pose, rtol=0.05, atol=0.05)


def test_autocast() -> None:
    layer, capsules = Transformed(), Capsules(torch.randn(2, 48, 4, 4), torch.rand(2, 3, 4, 4))
    half = Capsules(*(maps.bfloat16() for maps in capsules))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(half)
    with torch.no_grad():
        expected = layer(Capsules(*(maps.float() for maps in half)))
    assert_close(found, expected)
