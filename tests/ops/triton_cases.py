"""The Triton kernels in Triton's interpreter, against the reference: outputs, and every gradient by name.

Not collected by itself: the interpreter is chosen as triton is imported. ``test_triton.py`` runs this file in a process
with ``TRITON_INTERPRET=1``.
"""

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ops.test_native_equals_reference import Case, assert_equal_to_reference
from ops.test_native_precision import field, run
from support import method_options
from torchcaps import Capsules, use_backend
from torchcaps.functional import Epanechnikov, list_routings, routing_method
from torchcaps.nn import CapsuleConv2d, ClassCapsules
from torchcaps.ops import dispatch, reference
from torchcaps.ops.triton import launch, operator
from torchcaps.ops.window import Window

METHODS = list_routings(native=True)
TILE = Window((1, 2), (1, 2), (0, 0))


def a_case(*arguments: object, **options: object) -> Case:
    """The first one that float32 can be right about."""
    tries = (Case(*arguments, seed=seed, **options) for seed in range(200))
    return next(case for case in tries if case.is_well_conditioned())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_default_options(method: str, iterations: int) -> None:
    inputs, outputs = (3, 5) if iterations < 3 else (7, 2)  # enough votes for each of EM's clusters
    case = a_case(1, 1, 2, inputs, outputs, TILE, method, {"iterations": iterations})
    assert_equal_to_reference(case, torch.channels_last, "triton")


OPTIONS = method_options(
    "frem",
    "frms",
    kernel=("gaussian", Epanechnikov(clipped=True)),
    distance=("l1", "l2"),
    normalize=("softmax", "sum"),
)


def every_option(case: tuple[str, dict]) -> None:
    method, options = case
    options = {**options, "iterations": 2, "bandwidth": 9.0, "activation_bandwidth": 5.0}
    case = a_case(1, 1, 2, 2, 3, TILE, method, options, learned=True)
    assert_equal_to_reference(case, torch.contiguous_format, "triton")


@pytest.mark.parametrize("case", OPTIONS[::3], ids=str)
def test_options(case: tuple[str, dict]) -> None:
    every_option(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_all_options(case: tuple[str, dict]) -> None:
    every_option(case)


@st.composite
def small_cases(draw: st.DrawFn) -> Case:
    method = draw(st.sampled_from(METHODS))
    kernel, stride, padding = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 2), (1, 2), (0, 1))
    )
    return Case(
        batch=draw(st.integers(1, 2)),
        height=draw(st.integers(kernel[0], 2)),
        width=draw(st.integers(kernel[1], 2)),
        inputs=draw(st.integers(1, 3)),
        outputs=draw(st.sampled_from([1, 3, 4, 9])),
        window=Window(kernel, stride, padding),
        method=method,
        options={"iterations": draw(st.integers(1, 3))},
        seed=draw(st.integers(0, 2**31)),
    )


@settings(max_examples=4, deadline=None)
@given(case=small_cases(), channels_last=st.booleans())
def test_random_shapes(case: Case, channels_last: bool) -> None:
    assume(case.is_well_conditioned())
    assert_equal_to_reference(case, torch.channels_last if channels_last else torch.contiguous_format, "triton")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=small_cases(), channels_last=st.booleans())
def test_many_random_shapes(case: Case, channels_last: bool) -> None:
    assume(case.is_well_conditioned())
    assert_equal_to_reference(case, torch.channels_last if channels_last else torch.contiguous_format, "triton")


@pytest.mark.parametrize("window", [Window((2, 2), (1, 2), (0, 1)), Window((3, 3), (2, 2), (1, 1))], ids=str)
def test_overlapping_fields_with_padding(window: Window) -> None:
    case = a_case(1, 3, 3, 1, 3, window, "frem", {"iterations": 2})
    assert_equal_to_reference(case, torch.channels_last, "triton")


@pytest.mark.parametrize("method", METHODS)
def test_fewer_programs_than_fields(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_PROGRAMS", 2)  # each adds several fields up
    case = a_case(2, 2, 4, 2, 3, Window((2, 2), (2, 2), (0, 0)), method, {"iterations": 2})
    assert_equal_to_reference(case, torch.channels_last, "triton")


@pytest.mark.parametrize(("inputs", "outputs"), [(256, 5), (32, 32)])  # in each of two places
def test_fields_of_many_inputs(inputs: int, outputs: int) -> None:
    case = a_case(1, 1, 2, inputs, outputs, Window((1, 2), (1, 1), (0, 0)), "frem", {"iterations": 2})
    assert_equal_to_reference(case, torch.channels_last, "triton")


@pytest.mark.parametrize(
    ("method", "options", "scale", "iterations"),
    [
        ("frem", {}, 1e6, 3),
        ("frem", {"normalize": "sum", "kernel": "gaussian", "distance": "l2"}, 5e3, 2),
        ("frms", {"kernel": "gaussian", "distance": "l2"}, 1e2, 2),
        ("em", {}, 1e3, 2),
    ],
    ids=str,
)
def test_votes_far_apart(method: str, options: dict, scale: float, iterations: int) -> None:
    """Logarithms of weights are so large that they have few digits after the point."""
    for seed in range(3):
        torch.manual_seed(seed)
        layer = ClassCapsules(5, 3, 1, routing=method, iterations=iterations, transform_std=0.5, **options)
        maps = Capsules(scale * torch.randn(1, 80, 1, 1), torch.rand(1, 5, 1, 1))
        expected = gradients(layer.double(), Capsules(*(m.double() for m in maps)), "reference")
        for found, wanted in zip(gradients(layer.float(), maps, "triton"), expected, strict=True):
            assert (found - wanted).abs().max() <= 1e-6 + 1e-4 * wanted.abs().max()


def assert_finite(method: str, options: dict, pose: torch.Tensor, activation: torch.Tensor, iterations: int) -> None:
    pose = pose.reshape(1, -1, 1, 1).clone().requires_grad_()
    activation = activation.reshape(1, -1, 1, 1).clone().requires_grad_()
    torch.manual_seed(0)
    layer = ClassCapsules(
        activation.shape[1], 3, 1, routing=method, iterations=iterations, transform_std=0.5, **options
    )
    with use_backend("triton"):
        routed = layer(Capsules(pose, activation))
    sum((torch.linspace(-1, 1, v.numel()).reshape(v.shape) * v).sum() for v in routed).backward()
    for value in (*routed, pose.grad, activation.grad, *(p.grad for p in layer.parameters())):
        assert value.isfinite().all()


@pytest.mark.parametrize(
    ("method", "options"), [("frem", {"normalize": "sum"}), ("frms", {"kernel": "gaussian"}), ("em", {})]
)
def test_never_a_nan(method: str, options: dict) -> None:
    g = torch.Generator().manual_seed(0)
    some = torch.tensor([[0.0, 1.0, 2e-39, 0.3, 1e-32]])
    for scale, activation, iterations in ((1e-6, some, 2), (1e6, some, 5), (1e3, 0 * some, 2), (1e6, 1e-37 * some, 3)):
        assert_finite(method, options, scale * torch.randn(5, 16, generator=g), activation, iterations)
    assert_finite(method, options, torch.ones(5, 16), torch.rand(5, generator=g), 3)  # identical poses


def test_one_of_several_votes_has_all_the_weight() -> None:
    options = {"kernel": "gaussian", "distance": "l2"}
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        assert_finite("frms", options, 1e5 * torch.randn(5, 16, generator=g), 1e-20 * torch.rand(1, 5, generator=g), 2)


def test_a_nan_that_comes_in_comes_out() -> None:
    layer = CapsuleConv2d(2, 3, routing="em")
    pose, activation = torch.randn(1, 32, 2, 2), torch.rand(1, 2, 2, 2)
    pose[0, 0, 0, 0] = float("nan")
    with use_backend("triton"):
        found = layer(Capsules(pose, activation))
    assert found.activation.isnan().all()


@pytest.mark.parametrize("method", ["frms", "frem"])
def test_a_single_vote_is_the_pose(method: str) -> None:
    values = field(method, [0.0, 0.0, 0.3], 3, scale=1.0, seed=1)
    with use_backend("triton"):
        found = run(dispatch.route_map, method, 3, values, torch.float32)
    expected = run(reference.route_map, method, 3, values, torch.float64)
    assert found["gradient of beta"].eq(0).all()
    for name, wanted in expected.items():
        assert_close(found[name], wanted, rtol=0, atol=1e-5 * wanted.abs().max().clamp(min=1.0).item())


def test_em_of_large_votes_of_which_one_has_nearly_all_weight() -> None:
    values = field("em", [1e-9, 0.8, *(0.5e-9 for _ in range(3))], 3, scale=100, seed=0)
    with use_backend("triton"):
        found = run(dispatch.route_map, "em", 2, values, torch.float32)
    for name, wanted in run(reference.route_map, "em", 2, values, torch.float64).items():
        assert (found[name] - wanted).abs().max() < 1e-3 * wanted.abs().max(), name


def gradients(layer: torch.nn.Module, maps: Capsules, backend: str) -> list[torch.Tensor]:
    layer = copy.deepcopy(layer)
    leaves = [m.detach().clone().requires_grad_() for m in maps]
    with use_backend(backend):
        pose, activation = layer(Capsules(*leaves))
    (pose.float().square().sum() + activation.float().square().sum()).backward()
    return [pose, activation, *(leaf.grad for leaf in leaves), *(p.grad for p in layer.parameters())]


def test_shared_matrices_coordinates_and_strides() -> None:
    torch.manual_seed(0)
    layer = ClassCapsules(3, 2, shared=True, coordinates=True, transform_std=0.5)
    maps = Capsules(torch.randn(2, 3, 1, 48).permute(0, 3, 2, 1)[..., ::2], torch.rand(2, 3, 1, 6)[..., ::3])
    assert layer.weight.shape[0] == 3  # the op takes them as they are
    for found, expected in zip(gradients(layer, maps, "triton"), gradients(layer, maps, "reference"), strict=True):
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = CapsuleConv2d(2, 3, (1, 2), transform_std=0.5)
    maps = Capsules(torch.randn(1, 32, 1, 2).to(dtype), torch.rand(1, 2, 1, 2).to(dtype))
    expected = gradients(layer, Capsules(*(m.float() for m in maps)), "reference")
    with torch.autocast("cpu", dtype=dtype):
        found = gradients(layer, maps, "triton")
    assert found[0].dtype == torch.float32
    assert found[2].dtype == dtype
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours.float(), theirs, rtol=1e-2, atol=1e-4)
    whole = gradients(layer.to(dtype), maps, "triton")
    assert whole[0].dtype == dtype
    assert_close(whole[0].float(), expected[0], rtol=0.05, atol=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_the_affine_is_of_the_poses(method: str) -> None:
    t = field(method, [0.5, 0.3], 3, scale=1.0, seed=0)
    parameters = {name: t[name] for name in list(t)[3:]}
    affine = (torch.randn(48), torch.randn(48))
    arguments = {"window": Window((1, 1), (1, 1), (0, 0)), "method": routing_method(method), "options": {}}
    capsules = Capsules(t["pose"], t["activation"])
    with torch.no_grad(), use_backend("triton"):
        found = dispatch.route_map(capsules, t["weight"], parameters, affine=affine, **arguments)
    expected = reference.route_map(capsules, t["weight"], parameters, affine=affine, **arguments)
    assert_close(found, tuple(expected[:2]), rtol=1e-4, atol=1e-5)


def arguments(method: str) -> tuple:
    t = field(method, [0.5, 0.3], 3, scale=1.0, seed=0)
    tensors = [value.requires_grad_() for value in t.values()]
    options = (
        [1, 1, 1, 1, 0, 0],
        method,
        1,
        "epanechnikov",
        "epanechnikov",
        "l1",
        "softmax",
        [1.0, 1.0, 0.01, 0.95, 1e-8],
    )
    return *tensors, torch.tensor(1.5, requires_grad=True), None, *options


def test_opcheck() -> None:
    inputs = arguments("frem")
    torch.library.opcheck(operator.route, inputs)
    outputs = operator.route(*inputs)
    detached = [t.detach() for t in (*(torch.randn_like(o) for o in outputs), *inputs[:6])]
    torch.library.opcheck(operator.route_backward, (*detached, *inputs[6:]))


def test_wrong_sizes_and_second_derivatives_are_refused() -> None:
    inputs = arguments("frem")
    for i, wrong in enumerate((inputs[0][:, :31], inputs[1], inputs[2][:, :2], inputs[3][:, :15], inputs[4][:2])):
        if i != 1:
            with pytest.raises(ValueError, match="expected"):
                operator.route(*inputs[:i], wrong, *inputs[i + 1 :])
    pose, _ = operator.route(*inputs)
    (gradient,) = torch.autograd.grad(pose.square().sum(), inputs[0], create_graph=True)
    with pytest.raises(NotImplementedError, match=r'use_backend\("reference"\)'):
        gradient.sum().backward()


def test_wrong_devices_and_types_are_refused() -> None:
    pose, activation, *rest = arguments("frem")
    for name in ("beta", "log_bandwidth"):
        layer = CapsuleConv2d(2, 3, learn_bandwidth=True)
        setattr(layer, name, torch.nn.Parameter(getattr(layer, name).detach().to("meta")))
        message = f"{name.removeprefix('log_')} is on meta, the capsules are on cpu: move one"
        with use_backend("triton"), pytest.raises(ValueError, match=message):
            layer(Capsules(torch.randn(1, 32, 2, 2), torch.rand(1, 2, 2, 2)))
    elsewhere = torch.zeros(48, device="meta")
    call = {"window": TILE, "method": routing_method("frem"), "options": {}}
    parameters = {"beta": rest[1], "beta0": rest[2]}
    for name, options in {"vote_offset": {"vote_offset": elsewhere}, "scale": {"affine": (elsewhere,) * 2}}.items():
        with use_backend("triton"), pytest.raises(ValueError, match=f"{name} is on meta"):
            dispatch.route_map(Capsules(pose, activation), rest[0], parameters, **call, **options)
    with pytest.raises(TypeError, match=r"activation is of type torch.int64, expected a floating type"):
        operator.route(pose, activation.long(), *rest)


def test_compile_and_export() -> None:
    layer = CapsuleConv2d(2, 3, (1, 2), iterations=1)
    maps = Capsules(torch.randn(1, 32, 1, 2), torch.rand(1, 2, 1, 2))
    with use_backend("triton"):
        expected = layer(maps)
        assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(maps), expected)
        program = torch.export.export(layer, (maps,))
        assert any("torchcaps.route_triton" in str(node.target) for node in program.graph.nodes)
        assert_close(tuple(program.module()(maps)), tuple(expected))


def test_an_empty_batch() -> None:
    case = Case(0, 2, 2, 2, 3, Window((2, 2), (2, 2), (0, 0)), "frem", {"iterations": 2}, seed=0)
    with use_backend("triton"):
        found = case.run(dispatch.route_map, case.arguments(torch.float32))
    assert found["out pose"].shape == (0, 1, 1, 3, 16)
    assert found["gradient of weight"].eq(0).all()
