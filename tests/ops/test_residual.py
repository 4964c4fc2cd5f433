"""The residual block's operator: equal to plain PyTorch, and a citizen of PyTorch as routing is."""

import copy
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from support import threads
from torchcaps import BackendUnavailableError, Capsules, create_model, use_backend
from torchcaps.nn import PoseResidual
from torchcaps.ops import native, residual
from torchcaps.ops.residual import (
    native_residual,
    native_residual_backward_pose,
    native_residual_backward_weight,
    pose_residual,
    reference_residual,
)

NAMES = ("output", "gradient of pose", "gradient of weight", "gradient of bias")
LAYOUTS = (torch.contiguous_format, torch.channels_last)


def tensors(
    batch: int = 2, n: int = 2, height: int = 5, width: int = 4, kernel: int = 3, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Multiples of powers of two: what ReLU sees is an odd multiple of 2^-10, so its gradient has no doubtful cases."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    pose = (8 * normal(batch, 16 * n, height, width)).round() / 8
    weight = (6 * normal(16 * n, 16 * n, kernel, kernel)).round() / 64
    return pose, weight, (8 * normal(16 * n)).round() / 8 + 2**-10


def floats(*inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.float().requires_grad_() for t in inputs)


def run(
    function,
    inputs: tuple[Tensor, ...],
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.channels_last,
    weight_layout: torch.memory_format = torch.channels_last,
) -> list[Tensor]:
    """The output and all gradients."""
    layouts = (layout, weight_layout, torch.contiguous_format)
    leaves = [t.to(dtype).clone(memory_format=m) for t, m in zip(inputs, layouts, strict=False)]
    leaves = [t.requires_grad_() for t in leaves]
    output = function(*leaves)
    loss = (output * torch.linspace(-1, 1, output.numel(), dtype=dtype).reshape(output.shape)).sum()
    return [output.detach(), *torch.autograd.grad(loss, leaves)]


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Single precision against double precision.

    A value is a sum of up to 2000 products, of which rounding leaves about their number's root times 6e-8, and some
    times that in tiles: 1e-5 of the largest value leaves some room, and a missing or doubled product is far above.
    """
    for name, ours, theirs in zip(NAMES, found, wanted, strict=True):
        assert ours.shape == theirs.shape, name
        size = float(theirs.abs().max().clamp(min=1.0)) if theirs.numel() else 1.0
        assert_close(ours.double(), theirs, rtol=0, atol=1e-5 * size, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture(scope="module", autouse=True)
def core_for_few_tiles() -> Iterator[None]:
    with mock.patch.object(residual, "FEW_TILES", 0):
        yield


@pytest.mark.parametrize("path", ["auto", "baseline"])
@settings(max_examples=60)
@given(
    batch=st.integers(0, 3),
    n=st.integers(1, 4),  # 16 n is 4, 2, 0 above a multiple of 6
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    kernel=st.sampled_from([3, 5]),
    count=st.integers(1, 3),
    channels_last=st.booleans(),
    weight_channels_last=st.booleans(),
    few=st.sampled_from([0, residual.FEW_TILES]),
    skip=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_output_and_gradients(
    path: str,
    batch: int,
    n: int,
    height: int,
    width: int,
    kernel: int,
    count: int,
    channels_last: bool,
    weight_channels_last: bool,
    few: int,
    skip: bool,
    seed: int,
) -> None:
    inputs = tensors(batch, n, height, width, kernel, seed)
    layouts = [LAYOUTS[last] for last in (channels_last, weight_channels_last)]
    twin = reference_residual if skip else lambda p, w, b: F.conv2d(p, w, b, padding="same").relu_()
    wanted = run(twin, inputs, torch.float64, *layouts)
    native.core.set_vector_path(path)
    try:
        # the operator itself: also in maps where plain PyTorch would be chosen
        with threads(count), mock.patch.object(residual, "FEW_TILES", few):
            found = run(lambda *of: native_residual(*of, skip=skip).relu_(), inputs, torch.float32, *layouts)
    finally:
        native.core.set_vector_path("auto")
    assert_near(found, wanted)


@pytest.mark.parametrize("kernel", [3, 5])
def test_gradients_have_the_strides_of_the_weight(kernel: int) -> None:
    """What DDP wants; also of a weight that is neither of the usual layouts."""
    pose, weight, bias = floats(*tensors(kernel=kernel))
    wanted = torch.autograd.grad(reference_residual(pose, weight, bias).square().sum(), weight)[0]
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 0, 1, 2), (1, 0, 3, 2)):
        back = sorted(range(4), key=order.__getitem__)
        leaf = weight.detach().permute(order).contiguous().permute(back).requires_grad_()
        with use_backend("native"):
            (gradient,) = torch.autograd.grad(pose_residual(pose, leaf, bias).square().sum(), leaf)
        assert gradient.stride() == leaf.stride()
        assert_close(gradient, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_several_blocks_of_tiles() -> None:
    inputs = tensors(batch=3, n=8, height=20, width=19)
    wanted = run(reference_residual, inputs, torch.float64)
    with use_backend("native"):
        assert_near(run(pose_residual, inputs), wanted)


def test_without_a_bias() -> None:
    pose, weight, bias = tensors()
    wanted = run(reference_residual, (pose, weight, torch.zeros_like(bias)), torch.float64)
    with use_backend("native"):
        found = run(lambda p, w: pose_residual(p, w, None), (pose, weight))
    assert_near([*found, wanted[3].float()], wanted)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_only_the_gradients_that_are_needed(needed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tensors()
    wanted = run(reference_residual, inputs, torch.float64)
    leaves = [t.float().requires_grad_(k in needed) for k, t in enumerate(inputs)]
    output = native_residual(*leaves, skip=True).relu_()
    if needed == (2,):
        monkeypatch.setattr(native, "core", None)  # not called for
    weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape)
    (output * weights).sum().backward()
    for k, leaf in enumerate(leaves):
        if k in needed:
            assert_close(leaf.grad.double(), wanted[1 + k], rtol=0, atol=1e-5 * float(wanted[1 + k].abs().max()))
        else:
            assert leaf.grad is None, NAMES[1 + k]


def uses_the_operator(*inputs: Tensor | None) -> bool:
    node = pose_residual(*inputs).grad_fn
    return "residual" in str(node.next_functions[0][0])


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_where_the_operator_serves() -> None:
    pose, weight, bias = floats(*tensors())
    with use_backend("native"):
        assert uses_the_operator(pose, weight, bias)
        assert uses_the_operator(pose.detach(), weight, None)
        assert uses_the_operator(pose, weight.detach(), bias.detach())
        assert uses_the_operator(pose, floats(*tensors(kernel=5))[1], bias)
        assert not uses_the_operator(pose[:, :, :2, :2], weight, bias)  # for speed: a tile would be mostly empty
    with use_backend("reference"):
        assert not uses_the_operator(pose, weight, bias)
    with use_backend("native", residual="reference"):
        assert not uses_the_operator(pose, weight, bias)
    for inputs, reason in (
        ((pose, floats(*tensors(kernel=7))[1], bias), "kernels of 3x3 and 5x5, not 7x7"),
        ((pose, weight[:, :, :2, :2], bias), "not 2x2"),
        ((pose, weight[:, :, :, :1], bias), "not 3x1"),
        ((pose[:, :24], weight[:24, :24], bias[:24]), "16 n channels"),
        ((pose.double(), weight.double(), bias.double()), r"float32; type of pose: torch\.float64"),
    ):
        with use_backend("auto"):
            assert not uses_the_operator(*inputs)
        with use_backend("native"), pytest.raises(BackendUnavailableError, match=f'{reason}.*"reference"'):
            pose_residual(*inputs)


def test_opcheck() -> None:
    for kernel, size in ((3, 4), (5, 3), (5, 1)):
        pose, weight, bias = floats(*tensors(height=size, width=size, kernel=kernel))
        last = pose.detach().to(memory_format=torch.channels_last).requires_grad_()
        for inputs in ((last, weight, bias), (pose, weight, None)):
            for skip in (True, False):
                torch.library.opcheck(native_residual, (*inputs, skip))
        weight_last = weight.detach().to(memory_format=torch.channels_last)
        for of in (weight.detach(), weight_last):
            torch.library.opcheck(native_residual_backward_weight, (torch.randn_like(last), last.detach(), of))
            torch.library.opcheck(native_residual_backward_pose, (torch.randn_like(last), of, True))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_to_one_graph(backend: str) -> None:
    torch.manual_seed(0)
    layer = PoseResidual(2, conv_init="torch")
    twin = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    capsules = Capsules(torch.randn(2, 32, 8, 8), torch.rand(2, 2, 8, 8))
    with use_backend("native"):
        for network in (compiled, twin):
            network(capsules).pose.square().sum().backward()
        assert_close(compiled(capsules).pose, twin(capsules).pose, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_a_network_exports_with_any_batch_size() -> None:
    torch.manual_seed(0)
    network = create_model("hybrid32").eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    with use_backend("native"):
        program = torch.export.export(network, (torch.randn(3, 1, 32, 32),), dynamic_shapes={"image": {0: batch}})
        assert any("torchcaps.pose_residual" in str(node.target) for node in program.graph.nodes)
        image = torch.randn(2, 1, 32, 32)
        assert_close(tuple(program.module()(image)), tuple(network(image)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_run_in_plain_pytorch(dtype: torch.dtype) -> None:
    layer, capsules = PoseResidual(2), Capsules(torch.randn(2, 32, 8, 8), torch.rand(2, 2, 8, 8))
    wanted = layer(capsules).pose
    layer, capsules = layer.to(dtype), Capsules(*(t.to(dtype) for t in capsules))
    pose = layer(capsules).pose
    assert pose.dtype == dtype
    assert_close(pose.float(), wanted, rtol=0.02, atol=0.02)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=f"float32; type of pose: {dtype}"):
        layer(capsules)


def test_autocast_chooses_the_types_as_before() -> None:
    layer, capsules = PoseResidual(2), Capsules(torch.randn(2, 32, 8, 8), torch.rand(2, 2, 8, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(capsules).pose.dtype == torch.bfloat16
        with use_backend("native"), pytest.raises(BackendUnavailableError, match=r"autocast asks for torch\.bfloat16"):
            layer(capsules)


def test_vmap_runs_in_plain_pytorch() -> None:
    pose, weight, bias = floats(*tensors())
    stacked = torch.func.vmap(lambda p: pose_residual(p, weight, bias))(pose.unsqueeze(0))
    assert_close(stacked[0], reference_residual(pose, weight, bias))
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=r"torch\.func"):
        torch.func.vmap(lambda p: pose_residual(p, weight, bias))(pose.unsqueeze(0))


@pytest.mark.parametrize("compiled", [False, True])
def test_forward_mode_derivatives_run_in_plain_pytorch(compiled: bool) -> None:
    pose, weight, bias = (t.detach() for t in floats(*tensors()))
    along = torch.randn_like(pose)

    def derivative(function, pose: Tensor) -> Tensor:
        return torch.func.jvp(lambda p: function(p, weight, bias), (pose,), (along,))[1]

    run = torch.compile(derivative, fullgraph=True, backend="aot_eager") if compiled else derivative
    wanted = derivative(reference_residual, pose)
    assert_close(run(pose_residual, pose), wanted)
    with torch.autograd.forward_ad.dual_level():
        output = pose_residual(torch.autograd.forward_ad.make_dual(pose, along), weight, bias)
        assert_close(torch.autograd.forward_ad.unpack_dual(output).tangent, wanted)


def test_few_tiles_run_in_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "FEW_TILES", 5)
    calls = mock.Mock(wraps=native.core)
    monkeypatch.setattr(native, "core", calls)
    for batch in (2, 3):  # of two tiles each
        native_residual(*floats(*tensors(batch)), skip=True).sum().backward()
        names = [name for name, *_ in calls.method_calls]
        assert names == ([] if batch == 2 else ["residual_forward", "residual_forward", "residual_backward"])


def test_a_second_derivative_is_refused() -> None:
    pose, weight, bias = floats(*tensors())
    with use_backend("native"):
        output = pose_residual(pose, weight, bias)
    for leaf in (pose, weight):
        (gradient,) = torch.autograd.grad(output.square().sum(), leaf, create_graph=True)
        with pytest.raises(NotImplementedError, match=r'use_backend\("reference"\)'):
            gradient.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode) -> None:
    layer, capsules = PoseResidual(2), Capsules(torch.randn(2, 32, 8, 8), torch.rand(2, 2, 8, 8))
    wanted = layer(capsules)
    with use_backend("native"), mode():
        assert_close(layer(capsules).pose, wanted.pose)


def test_a_hooked_or_replaced_layer_is_called() -> None:
    layer, capsules = PoseResidual(2), Capsules(torch.randn(2, 32, 8, 8), torch.rand(2, 2, 8, 8))
    wanted = layer(capsules)
    seen: list[Tensor] = []
    handle = layer.conv.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))
    assert_close(layer(capsules), wanted)
    handle.remove()
    plain = layer.conv
    layer.conv = nn.Conv2d(32, 32, 3, padding="same", dilation=2)
    assert_close(layer(capsules).pose, (layer.conv(capsules.pose) + capsules.pose).relu())
    layer.conv = plain
    assert_close(layer(capsules), wanted)
    assert len(seen) == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_same_bits_in_every_run(count: int) -> None:
    inputs = tensors(batch=7)
    with threads(count), use_backend("native"):
        wanted = run(pose_residual, inputs)
        for _ in range(5):
            again = run(pose_residual, inputs)
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(again, wanted, strict=True))


def test_wrong_sizes_are_refused_by_the_core_itself() -> None:
    pose, weight, bias = (t.float() for t in tensors())
    grad = torch.randn_like(pose)
    for inputs in (
        (grad[:1], pose, weight),
        (grad, pose[:, :16], weight),
        (grad, pose, weight[:16]),
        (grad, pose, weight[:, :, 1:]),
    ):
        with pytest.raises(ValueError, match="expected"):
            native_residual_backward_weight(*inputs)
    for of, by in ((pose[:, :16], weight), (pose, weight[:16]), (pose, weight[:, :, 1:]), (pose, weight[:, :, :1, :1])):
        with pytest.raises(ValueError, match="expected"):
            native_residual(of, by, bias, skip=True)
        with pytest.raises(ValueError, match="expected"):
            native_residual_backward_pose(of, by, skip=True)
    with pytest.raises(ValueError, match="bias"):
        native_residual(pose, weight, bias[:16], skip=True)
