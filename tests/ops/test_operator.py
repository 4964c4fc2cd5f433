"""The native core as a citizen of PyTorch: opcheck, compile, export, autocast, threads, fork, determinism."""

import copy
import os
import threading

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from torchcaps import Capsules, use_backend
from torchcaps.models import HybridNetwork, Stage
from torchcaps.nn import CapsuleConv2d
from torchcaps.ops import native


def tiny_network(**options: object) -> HybridNetwork:
    stages = (Stage(capsules=3, residual=3), Stage(capsules=4))
    return HybridNetwork(stages, num_classes=3, image_size=16, first_channels=32, conv_init="torch", **options)


def arguments(method: str = "frem", batch: int = 2) -> tuple:
    g = torch.Generator().manual_seed(0)
    first = (8, 16) if method != "em" else (8,)
    tensors = (
        torch.randn(batch, 48, 6, 6, generator=g).contiguous(memory_format=torch.channels_last),
        torch.rand(batch, 3, 6, 6, generator=g).contiguous(memory_format=torch.channels_last),
        0.3 * torch.randn(12, 8, 4, 4, generator=g),
        torch.randn(first, generator=g),
        torch.randn(8, generator=g),
        torch.tensor(1.5),
    )
    kernels = ("epanechnikov", "epanechnikov")
    options = ([2, 2, 2, 2, 0, 0], method, 2, *kernels, "l1", "softmax", list(native.NUMBERS.values()))
    return *(t.requires_grad_() for t in tensors), 0.3 * torch.randn(12, 16, generator=g), *options


@pytest.mark.parametrize("method", ["frms", "frem", "em"])
def test_opcheck(method: str) -> None:
    inputs = arguments(method)
    torch.library.opcheck(native.route, inputs)
    outputs = native.route(*inputs)
    detached = [t.detach() for t in (*(torch.randn_like(o) for o in outputs), *inputs[:7], *outputs)]
    torch.library.opcheck(native.route_backward, (*detached, *inputs[7:]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_whole_network_compiles_to_one_graph(backend: str) -> None:
    torch.manual_seed(0)
    model = tiny_network()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    image = torch.randn(3, 1, 16, 16)
    with use_backend("native"):
        for network in (compiled, twin):
            network(image).activation[:, 0].sum().backward()
        assert_close(compiled(image).activation, twin(image).activation, rtol=1e-4, atol=1e-5)
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_whole_network_exports_with_any_batch_size() -> None:
    model = tiny_network().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    with use_backend("native"):
        program = torch.export.export(model, (torch.randn(3, 1, 16, 16),), dynamic_shapes={"image": {0: batch}})
        assert any("torchcaps.route" in str(node.target) for node in program.graph.nodes)
        image = torch.randn(5, 1, 16, 16)
        assert_close(program.module()(image).activation, model(image).activation)


def test_autocast_computes_routing_in_float32() -> None:
    model = tiny_network()
    image = torch.randn(2, 1, 16, 16)
    with use_backend("auto", routing="native"), torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(image)
        output.activation[:, 0].sum().backward()
    assert output.activation.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert_close(output.activation, model(image).activation, rtol=0.1, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_maps(dtype: torch.dtype) -> None:
    layer = CapsuleConv2d(2, 3)
    capsules = Capsules(torch.randn(2, 32, 4, 4), torch.rand(2, 2, 4, 4))
    with use_backend("native"):
        wanted = layer(capsules)
        found = layer.to(dtype)(Capsules(*(maps.to(dtype) for maps in capsules)))
    assert found.pose.dtype == dtype
    assert_close(found.pose.float(), wanted.pose, rtol=0.05, atol=0.01)


def run_once(threads: int) -> list[Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs = arguments(batch=7)
        outputs = native.route(*inputs)
        loss = sum((o * torch.linspace(-1, 1, o.numel()).reshape(o.shape)).sum() for o in outputs)
        return [*outputs, *torch.autograd.grad(loss, inputs[:6])]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_in_every_run(threads: int) -> None:
    wanted = run_once(threads)
    for _ in range(5):
        for ours, theirs in zip(run_once(threads), wanted, strict=True):
            assert torch.equal(ours, theirs)


def test_many_python_threads_at_once() -> None:
    wanted = run_once(2)
    found: list[list[Tensor]] = []
    torch.set_num_threads(2)
    workers = [threading.Thread(target=lambda: found.extend(run_once(2) for _ in range(10))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 40
    for result in found:
        for ours, theirs in zip(result, wanted, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_can_route() -> None:
    with torch.no_grad():
        inputs = arguments()
        wanted = native.route(*inputs)  # the pool has its threads now
        child = os.fork()
        if child == 0:  # no pytest machinery in here: the answer is the exit code
            code = 1
            try:
                same = all(torch.equal(a, b) for a, b in zip(native.route(*inputs), wanted, strict=True))
                code = 0 if same else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.equal(native.route(*inputs)[0], wanted[0])


def test_a_second_derivative_is_refused() -> None:
    inputs = arguments()
    pose, _ = native.route(*inputs)
    (gradient,) = torch.autograd.grad(pose.square().sum(), inputs[0], create_graph=True)
    with pytest.raises(NotImplementedError, match=r'use_backend\("reference"\)'):
        gradient.sum().backward()


def test_wrong_sizes_are_refused_by_the_core_itself() -> None:
    pose, activation, weight, first, second, *options = arguments()  # the bandwidth is the first of the options
    with torch.no_grad():
        for wrong in (
            (pose[:, :47], activation, weight, first, second),
            (pose, activation[:, :, :5], weight, first, second),
            (pose, activation, weight[:11], first, second),
            (pose, activation, weight, first[:, :15], second),
            (pose, activation, weight, first, second[:7]),
        ):
            with pytest.raises(ValueError, match="expected"):
                native.route(*wrong, *options)
        with pytest.raises(ValueError, match="iterations"):
            native.route(*arguments()[:7], [2, 2, 2, 2, 0, 0], "frem", 0, *options[5:])
        with pytest.raises(ValueError, match="offset"):
            native.route(*arguments()[:6], torch.zeros(11, 16), *options[2:])
        for bandwidth in (0.0, -1.0, float("nan")):
            with pytest.raises(ValueError, match=r"bandwidth: got .*positive"):
                native.route(pose, activation, weight, first, second, torch.tensor(bandwidth), *options[1:])
