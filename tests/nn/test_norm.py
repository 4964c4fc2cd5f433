"""Batch normalisation of the layers: where it stands, what evaluation folds, and when the module itself is called."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from support import random_capsules, tiny_hybrid
from torchcaps import Capsules, create_model, use_backend
from torchcaps.models import BaselineCnn
from torchcaps.nn import CapsuleConv2d, ClassCapsules, PoseResidual, PrimaryCapsules
from torchcaps.nn.norm import Convolution, affine_of

BACKENDS = ("native", "reference")


def lived_in(module: nn.Module, seed: int = 3) -> nn.Module:
    """With norms whose every value is its own, as after training."""
    g = torch.Generator().manual_seed(seed)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.weight.data, norm.bias.data, norm.running_mean):
                values.copy_(torch.randn(values.shape, generator=g))
            norm.running_var.copy_(0.1 + torch.rand(norm.running_var.shape, generator=g))
    return module


def unfolded(module: nn.Module) -> nn.Module:
    """A copy whose norms have a hook, so that each is called."""
    module = copy.deepcopy(module)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.register_forward_hook(lambda *_: None)
    return module


def by_hand(maps: Tensor, norm: nn.BatchNorm2d) -> np.ndarray:
    """Batch normalisation of ``[B, C, H, W]`` by its definition, with the statistics of the batch."""
    x = maps.detach().double().numpy()
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    gamma, beta = (p.detach().double().numpy()[None, :, None, None] for p in (norm.weight, norm.bias))
    return (x - mean) / np.sqrt(variance + norm.eps) * gamma + beta


def image(batch: int = 3, channels: int = 2, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(seed))


def capsules() -> Capsules:
    return random_capsules(3, 2, 8, 8, dtype=torch.float32)


LAYERS = {
    "primary": (lambda: PrimaryCapsules(2, 2, conv_init="torch", norm="batch"), image),
    "residual": (lambda: PoseResidual(2, conv_init="torch", norm="batch"), capsules),
    "routed": (lambda: CapsuleConv2d(2, 3, transform_std=1.0, norm="batch"), capsules),
    "overlapping": (lambda: CapsuleConv2d(2, 3, 3, 2, 1, transform_std=1.0, norm="batch", routing="em"), capsules),
    "convolution": (lambda: Convolution(2, 5, 3, conv_init="torch", norm="batch"), image),
    "hybrid": (lambda: tiny_hybrid(norm="batch", in_channels=2, transform_std=1.0), image),
    "cnn": (lambda: BaselineCnn((6,), (3,), num_classes=3, image_size=8, in_channels=2, norm="batch"), image),
}


def made(name: str) -> tuple[nn.Module, Tensor | Capsules]:
    torch.manual_seed(0)
    make, given = LAYERS[name]
    return lived_in(make()), given()


def outputs(module: nn.Module, given: Tensor | Capsules) -> tuple[Tensor, ...]:
    found = module(given)
    return found if isinstance(found, tuple) else (found,)


def gradients(module: nn.Module, given: Tensor | Capsules) -> dict[str, Tensor]:
    """By name: of every parameter, and of what the module was given."""
    leaves = [t.clone().requires_grad_() for t in (given if isinstance(given, tuple) else (given,))]
    found = outputs(module, Capsules(*leaves) if isinstance(given, tuple) else leaves[0])
    loss = sum((t * torch.linspace(-1, 1, t.numel()).reshape(t.shape)).sum() for t in found)
    named = dict(module.named_parameters()) | {f"input {k}": leaf for k, leaf in enumerate(leaves)}
    by_leaf = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(named, by_leaf, strict=True) if gradient is not None}


@pytest.mark.parametrize("backend", BACKENDS)
def test_primary_normalises_before_its_relu(backend: str) -> None:
    layer, given = made("primary")
    with use_backend(backend):
        pose, activation = layer(given)
    wanted = np.maximum(by_hand(layer.pose(given), layer.norm), 0)
    assert_close(pose.double(), torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)
    head = layer.activation(torch.as_tensor(wanted).float())
    assert_close(activation, head.sigmoid(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_residual_normalises_its_convolution_alone(backend: str) -> None:
    layer, given = made("residual")
    with use_backend(backend):
        pose, activation = layer(given)
    wanted = np.maximum(by_hand(layer.conv(given.pose), layer.norm) + given.pose.double().numpy(), 0)
    assert_close(pose.double(), torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)
    assert activation is given.activation


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["routed", "overlapping"])
def test_routed_poses_are_normalised_after_the_activation(name: str, backend: str) -> None:
    layer, given = made(name)
    plain = copy.deepcopy(layer)
    plain.norm = None
    with use_backend(backend):
        pose, activation = layer(given)
        raw = plain(given)
    assert_close(activation, raw.activation)
    assert_close(pose.double(), torch.as_tensor(by_hand(raw.pose, layer.norm)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LAYERS)
def test_folded_is_what_the_modules_give(name: str, backend: str, training: bool) -> None:
    module, given = made(name)
    module.train(training)
    twin = unfolded(module)
    with use_backend("reference"):
        wanted, wanted_gradients = outputs(twin, given), gradients(twin, given)
    with use_backend(backend):
        found, found_gradients = outputs(module, given), gradients(module, given)
        with torch.no_grad():
            without = outputs(module, given)
    # layer by layer, batch statistics make the roundings of small poses those of large ones
    more = 10 if name == "hybrid" else 1
    for ours, again, theirs in zip(found, without, wanted, strict=True):
        assert_close(ours, theirs, rtol=1e-4 * more, atol=1e-5 * more)
        assert_close(again, theirs, rtol=1e-4 * more, atol=1e-5 * more)
    assert found_gradients.keys() == wanted_gradients.keys()
    assert sum("norm" in key for key in found_gradients) >= 2  # both of each norm that is differentiated through
    for key, theirs in wanted_gradients.items():
        atol = 2e-4 * more * max(1.0, float(theirs.abs().max()))
        assert_close(found_gradients[key], theirs, rtol=0, atol=atol, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("primary", "residual", "cnn", "hybrid")])
def test_folding_is_exact_to_rounding(name: str) -> None:
    """In double precision, without ReLU: only the order of multiplications differs."""
    module, given = made(name)
    module.double().eval()
    given = Capsules(*(t.double() for t in given)) if isinstance(given, tuple) else given.double()
    twin = unfolded(module)
    for ours, theirs in zip(outputs(module, given), outputs(twin, given), strict=True):
        assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_affine_of_every_kind_of_norm() -> None:
    x = image(channels=4).double()
    for options in ({}, {"affine": False}, {"eps": 0.3}):
        norm = lived_in_norm(nn.BatchNorm2d(4, **options)).double().eval()
        scale, shift = affine_of(norm)
        assert_close(x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1), norm(x), rtol=1e-12, atol=1e-12)
    assert affine_of(nn.BatchNorm2d(4)) is None  # in training
    assert affine_of(nn.BatchNorm2d(4, track_running_stats=False).eval()) is None
    assert affine_of(nn.Identity()) is None


def lived_in_norm(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    norm(image(channels=4))
    return norm


@pytest.mark.parametrize("name", ["primary", "residual", "routed", "convolution"])
def test_a_hooked_or_replaced_norm_is_called(name: str) -> None:
    module, given = made(name)
    module.eval()
    seen: list[tuple[Tensor, Tensor]] = []
    handle = module.norm.register_forward_hook(lambda norm, inputs, output: seen.append((output, output.clone())))
    for training in (True, False):
        module.train(training)
        sum(t.sum() for t in outputs(module, given)).backward()
    handle.remove()
    assert len(seen) == 2
    assert all(torch.equal(output, copied) for output, copied in seen)  # nobody has written into them since
    plain = module.norm
    module.norm = nn.Sequential(plain, nn.Tanh())  # whose gradient needs its output
    sum(t.sum() for t in outputs(module, given)).backward()
    module.norm = nn.Identity()
    without = copy.deepcopy(module)
    without.norm = None
    assert_close(outputs(module, given), outputs(without, given))


@pytest.mark.parametrize("name", ["primary", "residual", "convolution"])
def test_a_replaced_convolution_is_called_and_normalised(name: str) -> None:
    module, given = made(name)
    module.eval()
    conv = "pose" if name == "primary" else "conv"
    twin = unfolded(module)
    for of in (module, twin):
        plain = getattr(of, conv)
        other = nn.Conv2d(plain.in_channels, plain.out_channels, 3, padding="same", dilation=2)
        torch.manual_seed(1)
        nn.init.normal_(other.weight)
        nn.init.normal_(other.bias)
        setattr(of, conv, other)
    assert_close(outputs(module, given), outputs(twin, given))


def test_running_statistics_are_plain_batch_norm() -> None:
    network = tiny_hybrid(norm="batch")
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert [type(norm) for norm in norms] == [nn.BatchNorm2d] * 4  # primary, two capsule layers, one residual block
    network(torch.randn(4, 1, 8, 8))
    assert all(norm.num_batches_tracked == 1 and not norm.running_mean.eq(0).all() for norm in norms)
    assert not any("norm" in name for name, _ in network.class_capsules.named_modules())
    names = [name for name in network.state_dict() if name.endswith("running_var")]
    assert names == [f"{part}.norm.running_var" for part in ("primary", "stages.0", "stages.1", "stages.2")]
    convolutions = (network.primary.pose, network.stages[1].conv)
    assert all(conv.bias is None for conv in convolutions)


def test_norms_of_the_convolutions_only() -> None:
    network = tiny_hybrid(norm="batch", norm_poses=False)
    norms = [name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms == ["primary.norm", "stages.1.norm"]


def test_without_norm_nothing_has_changed() -> None:
    for network in (tiny_hybrid(), create_model("cnn32")):
        assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
        assert all(module.bias is not None for module in network.modules() if isinstance(module, nn.Conv2d))
    names = ["layers.0.weight", "layers.0.bias", "layers.3.weight", "layers.3.bias"]
    assert list(create_model("cnn32").state_dict())[:4] == names  # as in runs from before there were norms


def test_a_wrong_norm_is_refused() -> None:
    for make in (lambda: PrimaryCapsules(1, 1, norm="layer"), lambda: create_model("cnn32", norm="layer")):
        with pytest.raises(ValueError, match="norm='layer': expected None or 'batch'"):
            make()
    with pytest.raises(TypeError, match="norm"):
        ClassCapsules(2, 3, 4, norm="batch")


@pytest.mark.parametrize("training", [True, False])
def test_compiles_to_one_graph(training: bool) -> None:
    module, given = made("hybrid")
    module.train(training)
    twin = copy.deepcopy(module)
    with use_backend("native"):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert_close(outputs(compiled, given), outputs(twin, given))
        with torch.no_grad():
            assert_close(outputs(compiled.eval(), given), outputs(twin.eval(), given))


def test_exports_in_evaluation() -> None:
    module, given = made("hybrid")
    module.eval()
    with use_backend("native"):
        program = torch.export.export(module, (given,))
        assert_close(tuple(program.module()(given)), tuple(module(given)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["primary", "residual", "routed", "convolution"])
def test_autocast(name: str, training: bool) -> None:
    module, given = made(name)
    module.train(training)
    wanted = outputs(module, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = outputs(module, given)
    for ours, theirs in zip(found, wanted, strict=True):  # bfloat16 has 8 bits
        assert_close(ours.float(), theirs, rtol=0.02, atol=0.02 * theirs.abs().max().item())
