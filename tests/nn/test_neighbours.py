"""Tools that take any PyTorch module: they find parameters, layouts and outputs as they expect them."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, prune, vector_to_parameters
from torch.testing import assert_close

from support import tiny_hybrid
from torchcaps import use_backend
from torchcaps.functional import spread_loss
from torchcaps.models import BaselineCnn, HybridNetwork, Network, Stage

LAYOUTS = (torch.contiguous_format, torch.channels_last)


def networks() -> dict[str, Network]:
    """Of every kind; the last has a body of convolutions."""
    torch.manual_seed(0)
    sizes = {"num_classes": 3, "image_size": 8, "first_channels": 16, "conv_init": "torch"}
    return {
        "hybrid": tiny_hybrid(decoder=True),
        "normed": tiny_hybrid(norm="batch"),
        "cnn": BaselineCnn((6,), (3,), **sizes),
        "pooled": HybridNetwork((Stage(capsules=2),), (32,), (3,), norm="batch", **sizes),
    }


@pytest.fixture(params=["hybrid", "normed", "cnn", "pooled"])
def network(request: pytest.FixtureRequest) -> Network:
    return networks()[request.param]


def image(seed: int = 1) -> Tensor:
    return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def loss(network: Network) -> Tensor:
    return spread_loss(network(image()).activation, torch.tensor([0, 1, 2, 0]), margin=0.9)


# --- layouts ---------------------------------------------------------------------------------------------------------


def test_parameters_and_their_gradients_are_contiguous(network: Network) -> None:
    loss(network).backward()
    for name, parameter in network.named_parameters():
        assert parameter.is_contiguous(), name
        assert parameter.grad is None or parameter.grad.is_contiguous(), name


def test_safetensors_saves_the_state(network: Network, tmp_path: Path) -> None:
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    twin = copy.deepcopy(network)
    for tensor in twin.state_dict().values():
        tensor.zero_()
    twin.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    assert_close(tuple(twin.eval()(image())), tuple(network.eval()(image())), rtol=0, atol=0)


def test_parameters_to_a_vector_and_back(network: Network) -> None:
    vector = parameters_to_vector(network.parameters())
    twin = copy.deepcopy(network)
    vector_to_parameters(2 * vector.detach(), twin.parameters())
    assert all(torch.equal(ours, 2 * of) for ours, of in zip(twin.parameters(), network.parameters(), strict=True))


def test_lbfgs_lowers_the_loss(network: Network) -> None:
    network.eval()  # the loss of a norm in training depends on nothing else, but its statistics would move
    optimiser = torch.optim.LBFGS(network.parameters(), lr=0.01, max_iter=3)

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(network)
        value.backward()
        return value

    before = loss(network).item()
    optimiser.step(closure)
    assert loss(network).item() < before


def test_pruned_convolutions(network: Network) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            prune.l1_unstructured(module, "weight", amount=0.5)
            assert (module.weight == 0).float().mean() == pytest.approx(0.5, abs=0.01)
    loss(network).backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if name.endswith("weight_orig"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_layout_that_the_user_chooses_changes_no_value(network: Network, layout: torch.memory_format) -> None:
    twin = copy.deepcopy(network).to(memory_format=layout)
    for of in (network, twin):
        loss(of).backward()
    for (name, ours), theirs in zip(twin.named_parameters(), network.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
            assert ours.dim() != 4 or ours.grad.is_contiguous(memory_format=layout), name


def test_weights_that_were_saved_channels_last_are_loaded(network: Network) -> None:
    twin = copy.deepcopy(network)
    twin.load_state_dict(copy.deepcopy(network).to(memory_format=torch.channels_last).state_dict())
    assert_close(tuple(twin.eval()(image())), tuple(network.eval()(image())))
    assert all(parameter.is_contiguous() for parameter in twin.parameters())


# --- hooks -----------------------------------------------------------------------------------------------------------


class Watcher:
    """What hooks saw: by module and kind, the tensors as they were, and the tensors themselves."""

    def __init__(self) -> None:
        self.seen: dict[tuple[nn.Module, str], list[tuple[Tensor, Tensor]]] = {}

    def note(self, module: nn.Module, kind: str, values: object) -> None:
        tensors = [t for t in (values if isinstance(values, tuple) else (values,)) if isinstance(t, Tensor)]
        self.seen.setdefault((module, kind), []).extend((t, t.detach().clone()) for t in tensors)

    def before(self, module: nn.Module, inputs: object) -> None:
        self.note(module, "input", inputs)

    def after(self, module: nn.Module, inputs: object, output: object) -> None:
        self.note(module, "output", output)

    def backward_before(self, module: nn.Module, gradient: object) -> None:
        self.note(module, "gradient of output", gradient)

    def backward(self, module: nn.Module, inputs: object, outputs: object) -> None:
        self.note(module, "gradient of input", inputs)

    def register(self, module: nn.Module, kind: str) -> list:
        return {
            "forward pre": lambda: [module.register_forward_pre_hook(self.before)],
            "forward": lambda: [module.register_forward_hook(self.after)],
            "backward pre": lambda: [module.register_full_backward_pre_hook(self.backward_before)],
            "full backward": lambda: [module.register_full_backward_hook(self.backward)],
        }[kind]()

    def register_globally(self) -> list:
        of_all = nn.modules.module
        return [
            of_all.register_module_forward_pre_hook(self.before),
            of_all.register_module_forward_hook(self.after),
            of_all.register_module_full_backward_pre_hook(self.backward_before),
            of_all.register_module_full_backward_hook(self.backward),
        ]


KINDS = ("forward pre", "forward", "backward pre", "full backward", "of all modules")


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    yield Watcher()
    assert not nn.modules.module._has_any_global_hook()


def leaves(network: Network) -> list[nn.Module]:
    """The modules that a forward pass calls: all without children, but those of the decoder and an empty body."""
    named = network.named_modules()
    return [m for name, m in named if not list(m.children()) and "decoder" not in name and name != "body"]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_hooks_break_nothing_and_see_what_stays(network: Network, watcher: Watcher, kind: str, training: bool) -> None:
    network.train(training)
    plain = copy.deepcopy(network)
    if kind == "of all modules":
        handles = watcher.register_globally()
    else:
        handles = [handle for module in network.modules() for handle in watcher.register(module, kind)]
    try:
        loss(network).backward()
        output = network(image())
    finally:
        for handle in handles:
            handle.remove()
    loss(plain).backward()
    assert_close(tuple(output), tuple(plain(image())), rtol=1e-4, atol=1e-5)
    for (name, ours), theirs in zip(network.named_parameters(), plain.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            atol = 1e-4 * max(1.0, float(theirs.grad.abs().max()))
            assert_close(ours.grad, theirs.grad, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    called = {module for module, _ in watcher.seen}
    assert called.issuperset(leaves(network))
    for (module, what), tensors in watcher.seen.items():
        for tensor, copied in tensors:
            assert torch.equal(tensor, copied), f"{what} of {module} was overwritten"


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("training", [True, False])
def test_a_hook_sees_what_the_module_computes(network: Network, training: bool, backend: str) -> None:
    """Each leaf, called by itself with what came to it, gives what the hook saw."""
    network.train(training)
    for module in leaves(network):
        calls: list[tuple[tuple[object, ...], object]] = []
        twin = copy.deepcopy(module)
        handle = module.register_forward_hook(lambda _, came, went, calls=calls: calls.append((came, went)))
        with use_backend(backend), torch.no_grad():
            network(image())
            ((came, went),) = calls
            assert_close(went, twin(*came), rtol=1e-4, atol=1e-5)
        handle.remove()


def test_the_primary_convolution_is_seen_before_its_relu() -> None:
    primary = tiny_hybrid().primary
    seen: list[Tensor] = []
    primary.pose.register_forward_hook(lambda module, inputs, output: seen.append(output))
    pose, _ = primary(image())
    assert seen[0].min() < 0
    assert_close(pose, seen[0].relu())


def test_a_hook_may_change_what_a_module_gives() -> None:
    primary = tiny_hybrid().primary
    primary.pose.register_forward_hook(lambda module, inputs, output: output + 1)
    assert_close(primary(image()).pose, (primary.pose.forward(image()) + 1).relu())
