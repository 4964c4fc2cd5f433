"""What PyTorch's own layers offer: factory arguments, reset_parameters, copies, other types, threads, processes."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

from support import random_capsules, tiny_hybrid
from torchcaps import create_model, use_backend
from torchcaps.functional import list_routings, routing_method
from torchcaps.models import BaselineCnn
from torchcaps.nn import CapsuleConv2d, ClassCapsules, Decoder, PoseResidual, PrimaryCapsules

MAKERS: dict[str, Callable[..., nn.Module]] = {
    "primary": lambda **o: PrimaryCapsules(1, 2, norm="batch", **o),
    "residual": lambda **o: PoseResidual(2, norm="batch", conv_init="torch", **o),
    "conv": lambda **o: CapsuleConv2d(2, 3, norm="batch", learn_bandwidth=True, bandwidth=2.0, **o),
    "classes": lambda **o: ClassCapsules(2, 3, 4, beta_init="paper", **o),
    "em": lambda **o: CapsuleConv2d(2, 3, routing="em", **o),
    "decoder": lambda **o: Decoder(3, **o),
    "hybrid": lambda **o: tiny_hybrid(norm="batch", decoder=True, **o),
    "cnn": lambda **o: BaselineCnn((6,), (3,), num_classes=3, image_size=8, **o),
    "pooled": lambda **o: create_model("poolcaps32", norm="batch", **o),
}


def floating(module: nn.Module) -> list[Tensor]:
    return [t for t in module.state_dict().values() if t.is_floating_point()]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_device_and_dtype(make: Callable[..., nn.Module]) -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert {t.dtype for t in floating(make(dtype=dtype))} == {dtype}
    assert {t.device.type for t in make(device="meta").state_dict().values()} == {"meta"}


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("decoder", "hybrid")])
def test_reset_parameters_is_the_start(name: str) -> None:
    """With the same seed the same weights, but for the decoder, whose constructor draws in another order."""
    torch.manual_seed(3)
    module = MAKERS[name]()
    expected = copy.deepcopy(module.state_dict())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
    torch.manual_seed(3)
    module.reset_parameters()
    found = module.state_dict()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


def test_a_network_from_nothing() -> None:
    network = tiny_hybrid(norm="batch", decoder=True, device="meta").to_empty(device="cpu")
    network.reset_parameters()
    twin = tiny_hybrid(norm="batch", decoder=True)
    for (name, ours), theirs in zip(network.state_dict().items(), twin.state_dict().values(), strict=True):
        assert ours.isfinite().all(), name
        if theirs.numel() > 100:
            assert_close(ours.std(), theirs.std(), rtol=0.2, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    assert network(torch.randn(2, 1, 8, 8)).activation.isfinite().all()


@pytest.mark.parametrize("name", list_routings())
def test_a_routing_method_itself(name: str) -> None:
    capsules = random_capsules(2, 2, 4, 4, dtype=torch.float32)
    outputs = []
    for routing in (name, routing_method(name)):
        torch.manual_seed(0)
        layer = CapsuleConv2d(2, 3, routing=routing)
        assert f"routing={name}" in repr(layer)
        outputs.append(layer(capsules))
    assert_close(*outputs, rtol=0, atol=0)
    network = create_model("hybrid32", first_channels=16, routing=routing_method(name))
    assert network.class_capsules.method is routing_method(name)


# --- what works, and has to go on working ----------------------------------------------------------------------------


def image(batch: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(batch, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = tiny_hybrid(norm="batch").eval()
    expected = network(image())
    half = copy.deepcopy(network).to(dtype)
    output = half(image().to(dtype))
    assert output.activation.dtype == dtype
    assert_close(output.activation.float(), expected.activation, rtol=0, atol=0.05)
    output.activation.float()[:, 0].sum().backward()
    assert all(p.grad.isfinite().all() for p in half.parameters() if p.grad is not None)


def test_vmap_over_images_and_over_networks() -> None:
    torch.manual_seed(0)
    networks = [tiny_hybrid().eval() for _ in range(2)]
    images = torch.stack([image(seed=1), image(seed=2)])  # [2, B, 1, 8, 8]
    found = vmap(lambda batch: networks[0](batch).activation)(images)
    assert_close(found, torch.stack([networks[0](batch).activation for batch in images]), rtol=1e-4, atol=1e-5)
    parameters, buffers = stack_module_state(networks)

    def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(networks[0], (parameters, buffers), (images[0],)).activation

    expected = torch.stack([network(images[0]).activation for network in networks])
    assert_close(vmap(call)(parameters, buffers), expected, rtol=1e-4, atol=1e-5)


def test_deepcopy_of_a_network_that_was_used() -> None:
    network = tiny_hybrid()
    network(image()).activation.sum().backward()
    twin = copy.deepcopy(network)
    assert_close(tuple(twin(image())), tuple(network(image())), rtol=0, atol=0)
    for ours, theirs in zip(twin.parameters(), network.parameters(), strict=True):
        assert ours.data_ptr() != theirs.data_ptr()
        assert ours.grad is None or torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_several_threads(backend: str) -> None:
    network, images = tiny_hybrid().eval(), [image(batch, seed=batch) for batch in range(1, 9)]

    def gradient(batch: Tensor) -> Tensor:
        leaf = batch.clone().requires_grad_()
        return torch.autograd.grad(network(leaf).activation[:, 0].sum(), leaf)[0]

    with use_backend(backend):
        expected = [gradient(batch) for batch in images]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(gradient, images))
    assert_close(found, expected, rtol=0, atol=0)


class Routed(Dataset[Tensor]):
    """Items that a network computes in the worker."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.network(image(seed=index)).activation


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_workers_of_a_data_loader(backend: str) -> None:
    """Forked after the core's threads were started."""
    network = tiny_hybrid().eval()
    with use_backend(backend):
        items = Routed(network)
        expected = [items[index] for index in range(4)]
        loader = DataLoader(items, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
        assert_close(list(loader), expected)
