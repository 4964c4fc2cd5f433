"""The fused head of the primary capsules: equal to plain PyTorch, and a citizen of PyTorch as routing is."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from torchcaps import BackendUnavailableError, use_backend
from torchcaps.nn import PrimaryCapsules
from torchcaps.ops import native
from torchcaps.ops.primary import (
    native_primary,
    native_primary_,
    native_primary_backward,
    primary_capsules,
    reference_primary,
)

NAMES = ("pose", "activation", "gradient of maps", "gradient of weight", "gradient of bias")


def tensors(batch: int = 2, n: int = 3, height: int = 5, width: int = 4, seed: int = 0) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    maps = torch.randn(batch, 16 * n, height, width, dtype=torch.float64, generator=g)
    weight = 0.3 * torch.randn(n, 16 * n, 1, 1, dtype=torch.float64, generator=g)
    return maps, weight, torch.randn(n, dtype=torch.float64, generator=g)


def run(function, inputs: tuple[Tensor, ...], dtype: torch.dtype, layout: torch.memory_format) -> list[Tensor]:
    """Outputs and gradients, with a weight of its own for every output."""
    leaves = [t.to(dtype).contiguous(memory_format=layout if t.dim() == 4 else torch.contiguous_format) for t in inputs]
    leaves = [t.clone().requires_grad_() for t in leaves]
    outputs = function(leaves[0].clone(memory_format=torch.preserve_format), *leaves[1:])  # may be overwritten
    weights = [torch.linspace(-1, 1, o.numel(), dtype=dtype).reshape(o.shape) for o in outputs]
    loss = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    return [*(o.detach() for o in outputs), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("path", ["auto", "baseline"])
@settings(max_examples=60)
@given(
    batch=st.integers(0, 3),
    n=st.integers(1, 9),  # on both sides of one and two groups of 4
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    threads=st.integers(1, 3),
    channels_last=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_outputs_and_gradients(
    path: str, batch: int, n: int, height: int, width: int, threads: int, channels_last: bool, seed: int
) -> None:
    inputs = tensors(batch, n, height, width, seed)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    wanted = run(reference_primary, inputs, torch.float64, layout)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    native.core.set_vector_path(path)
    try:
        with use_backend("native"):
            found = run(primary_capsules, inputs, torch.float32, layout)
            functional = run(native_primary, inputs, torch.float32, layout)
    finally:
        native.core.set_vector_path("auto")
        torch.set_num_threads(before)
    for name, ours, same, theirs in zip(NAMES, found, functional, wanted, strict=True):
        assert ours.shape == theirs.shape, name
        assert torch.equal(ours, same), f"{name}: in place, other bits"
        size = float(theirs.abs().max().clamp(min=1.0)) if theirs.numel() else 1.0
        assert_close(ours.double(), theirs, rtol=0, atol=1e-5 * size, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("function", [native_primary, primary_capsules])
def test_gradient_of_one_output_only(function) -> None:
    maps, weight, bias = (t.float().requires_grad_() for t in tensors())
    outputs = function(maps.clone(), weight, bias)
    by_pose = torch.autograd.grad(outputs[0].sum(), (maps, weight, bias), allow_unused=True, retain_graph=True)
    assert torch.equal(by_pose[0], (maps > 0).float())
    assert by_pose[1] is by_pose[2] is None  # as in plain PyTorch: an optimizer leaves such parameters alone
    found = torch.autograd.grad(outputs[1].sum(), (maps, weight, bias))
    wanted = torch.autograd.grad(reference_primary(maps.clone(), weight, bias)[1].sum(), (maps, weight, bias))
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_extreme_values() -> None:
    maps, weight, bias = (t.float() for t in tensors())
    maps[0] *= 1e6
    maps[1, :, 0] = torch.nan
    pose, activation = native_primary(maps, weight, bias)
    wanted, activations = reference_primary(maps.clone(), weight, bias)
    assert_close(pose, wanted, equal_nan=True)
    assert_close(activation, activations, equal_nan=True)
    assert activation[1, :, 0].isnan().all()


def test_opcheck() -> None:
    inputs = [t.float().requires_grad_() for t in tensors()]
    inputs[0] = inputs[0].detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    torch.library.opcheck(native_primary, tuple(inputs))
    torch.library.opcheck(native_primary_, tuple(t.detach().clone() for t in inputs))
    outputs = native_primary(*inputs)
    gradients = (torch.randn_like(o) for o in outputs)
    detached = tuple(t.detach() for t in (*gradients, inputs[1], *outputs))
    torch.library.opcheck(native_primary_backward, detached)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_to_one_graph(backend: str) -> None:
    torch.manual_seed(0)
    layer = PrimaryCapsules(1, 2, conv_init="torch")
    twin = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    image = torch.randn(2, 1, 8, 8)
    with use_backend("native"):
        for network in (compiled, twin):
            sum(maps.square().sum() for maps in network(image)).backward()
        assert_close(tuple(compiled(image)), tuple(twin(image)), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_exports_with_any_batch_size() -> None:
    layer = PrimaryCapsules(1, 2).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    with use_backend("native"):
        program = torch.export.export(layer, (torch.randn(3, 1, 8, 8),), dynamic_shapes={"image": {0: batch}})
        assert any("torchcaps.primary" in str(node.target) for node in program.graph.nodes)
        image = torch.randn(5, 1, 8, 8)
        assert_close(tuple(program.module()(image)), tuple(layer(image)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_run_in_plain_pytorch(dtype: torch.dtype) -> None:
    layer, image = PrimaryCapsules(1, 2), torch.randn(2, 1, 8, 8)
    wanted = layer(image)
    pose, activation = layer.to(dtype)(image.to(dtype))
    assert pose.dtype == activation.dtype == dtype
    assert_close(activation.float(), wanted.activation, rtol=0.02, atol=0.02)
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=f"float32; type of maps: {dtype}"):
        layer(image.to(dtype))


def test_autocast_chooses_the_types_as_before() -> None:
    layer, image = PrimaryCapsules(1, 2), torch.randn(2, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {maps.dtype for maps in layer(image)} == {torch.bfloat16}
        with use_backend("native"), pytest.raises(BackendUnavailableError, match=r"type of maps: torch\.bfloat16"):
            layer(image)


def test_vmap_runs_in_plain_pytorch() -> None:
    maps, weight, bias = (t.float() for t in tensors())
    stacked = torch.func.vmap(lambda m: primary_capsules(m, weight, bias))(maps.clone().unsqueeze(0))
    assert_close(stacked[1][0], native_primary(maps, weight, bias)[1])
    with use_backend("native"), pytest.raises(BackendUnavailableError, match=r"torch\.func"):
        torch.func.vmap(lambda m: primary_capsules(m, weight, bias))(maps.clone().unsqueeze(0))


@pytest.mark.parametrize("function", [native_primary, primary_capsules])
def test_a_second_derivative_is_refused(function) -> None:
    maps, weight, bias = (t.float().requires_grad_() for t in tensors())
    _, activation = function(maps.clone(), weight, bias)
    (gradient,) = torch.autograd.grad(activation.sum(), maps, create_graph=True)
    with pytest.raises(NotImplementedError, match=r'use_backend\("reference"\)'):
        gradient.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode) -> None:
    layer, image = PrimaryCapsules(1, 2), torch.randn(2, 1, 8, 8)
    wanted = layer(image)
    with use_backend("native"), mode():
        assert_close(tuple(layer(image)), tuple(wanted))


def test_a_hooked_or_replaced_layer_is_called() -> None:
    layer, image = PrimaryCapsules(1, 2), torch.randn(1, 1, 8, 8)
    wanted = layer(image)
    seen: list[Tensor] = []
    handle = layer.activation.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))
    assert_close(tuple(layer(image)), tuple(wanted))
    handle.remove()
    layer.activation = nn.Sequential(layer.activation)
    assert_close(tuple(layer(image)), tuple(wanted))
    assert len(seen) == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_in_every_run(threads: int) -> None:
    inputs = tensors(batch=7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        wanted = run(native_primary, inputs, torch.float32, torch.channels_last)
        for _ in range(5):
            again = run(native_primary, inputs, torch.float32, torch.channels_last)
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(again, wanted, strict=True))
    finally:
        torch.set_num_threads(before)


def test_wrong_sizes_are_refused_by_the_core_itself() -> None:
    maps, weight, bias = (t.float() for t in tensors())
    for wrong in ((maps[:, :47], weight, bias), (maps, weight[:2], bias), (maps, weight, bias[:2])):
        with pytest.raises(ValueError, match="expected"):
            native_primary(*wrong)
