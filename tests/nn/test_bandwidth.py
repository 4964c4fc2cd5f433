"""learn_bandwidth: the couplings' bandwidth as a parameter of a layer."""

import copy
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from support import assert_near, oracle_conv, random_capsules, randomised, tiny_hybrid
from torchcaps import Capsules, create_model, record_routing, use_backend
from torchcaps.nn import CapsuleConv2d, ClassCapsules
from torchcaps.nn.routed import RoutedLayer

LAYERS = [
    lambda **options: CapsuleConv2d(2, 3, **options),
    lambda **options: ClassCapsules(2, 3, (4, 4), **options),
]
each_layer = pytest.mark.parametrize("make", LAYERS)
each_method = pytest.mark.parametrize("routing", ["frms", "frem"])


def float32_capsules() -> Capsules:
    return random_capsules(2, 2, 4, 4, dtype=torch.float32)


@each_layer
def test_it_is_a_parameter_that_starts_at_the_option(make: type[RoutedLayer]) -> None:
    layer = make(learn_bandwidth=True, bandwidth=4.0)
    assert layer.state_dict()["log_bandwidth"].item() == pytest.approx(math.log(4.0))
    assert "bandwidth=4.0, learn_bandwidth=True" in repr(layer)
    other = make(learn_bandwidth=True)
    assert other.log_bandwidth.item() == 0.0
    other.load_state_dict(layer.state_dict())
    assert_close(other(float32_capsules()), layer(float32_capsules()))
    plain = make(bandwidth=4.0)
    assert "log_bandwidth" not in plain.state_dict()
    assert "learn_bandwidth" not in repr(plain)


@each_layer
@each_method
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_it_is_used_for_the_couplings_alone(make: type[RoutedLayer], routing: str, backend: str) -> None:
    options = {"routing": routing, "iterations": 3, "kernel": "gaussian", "normalize": "sum", "transform_std": 0.5}
    learned, plain = make(learn_bandwidth=True, **options), make(bandwidth=2.5, activation_bandwidth=1.0, **options)
    plain.load_state_dict({k: v for k, v in learned.state_dict().items() if k != "log_bandwidth"})
    with torch.no_grad():
        learned.log_bandwidth.fill_(math.log(2.5))
    with use_backend(backend):  # type: ignore[arg-type]
        assert_close(learned(float32_capsules()), plain(float32_capsules()))


@each_method
def test_a_layer_by_the_oracle_and_its_record(routing: str) -> None:
    options = {"iterations": 3, "kernel": "gaussian"}
    layer = randomised(CapsuleConv2d(2, 3, routing=routing, learn_bandwidth=True, activation_bandwidth=3.0, **options))
    capsules = random_capsules(2, 2, 2, 4)
    with record_routing(layer) as records:
        found = layer(capsules)
    expected = oracle_conv(layer, capsules, routing, (2, 2, 0), activation_bandwidth=3.0, **options)
    assert_near(tuple(found), expected[:2])
    [[routed]] = records.values()
    assert_near(routed.coupling, expected[2])


@each_layer
@each_method
def test_the_native_gradient_is_the_references(make: type[RoutedLayer], routing: str) -> None:
    torch.manual_seed(0)
    layer = make(learn_bandwidth=True, bandwidth=3.0, routing=routing, iterations=3, transform_std=0.5)
    gradients = []
    for backend, dtype in (("native", torch.float32), ("reference", torch.float64)):
        own = copy.deepcopy(layer).to(dtype)
        with use_backend(backend):  # type: ignore[arg-type]
            pose, activation = own(Capsules(*(maps.to(dtype) for maps in float32_capsules())))
        (pose.square().sum() + activation.square().sum()).backward()
        gradients.append({name: parameter.grad for name, parameter in own.named_parameters()})
    assert gradients[1]["log_bandwidth"] != 0
    for name, expected in gradients[1].items():
        size = expected.abs().max().item()
        assert_close(gradients[0][name].double() / size, expected / size, rtol=0, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(dtype: torch.dtype) -> None:
    layer = CapsuleConv2d(2, 3, learn_bandwidth=True, bandwidth=3.0)
    expected = layer(float32_capsules())
    layer = layer.to(dtype)
    found = layer(Capsules(*(maps.to(dtype) for maps in float32_capsules())))
    assert found.pose.dtype == layer.log_bandwidth.dtype == dtype
    assert_close(found.pose.float(), expected.pose, rtol=0.05, atol=0.01)
    found.pose.square().sum().backward()
    assert layer.log_bandwidth.grad.isfinite()


@pytest.mark.slow
def test_compiled_natively_with_gradients() -> None:
    layer = CapsuleConv2d(2, 3, learn_bandwidth=True, bandwidth=3.0)
    twin = copy.deepcopy(layer)
    with use_backend("native"):
        found = torch.compile(layer, fullgraph=True)(float32_capsules())
    with use_backend("reference"):
        expected = twin(float32_capsules())
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for output in (found, expected):
        output.pose.square().sum().backward()
    assert_close(layer.log_bandwidth.grad, twin.log_bandwidth.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@torch.no_grad()
def test_the_compiled_backend() -> None:
    layer = CapsuleConv2d(2, 3, learn_bandwidth=True, bandwidth=3.0)
    for bandwidth in (3.0, 5.0):  # no constant of the compiled code
        layer.log_bandwidth.fill_(math.log(bandwidth))
        with use_backend("compiled"):
            found = layer(float32_capsules())
        with use_backend("reference"):
            assert_close(found, layer(float32_capsules()), rtol=1e-4, atol=1e-5)


def test_copies() -> None:
    layer = CapsuleConv2d(2, 3, learn_bandwidth=True, bandwidth=3.0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_close(other(float32_capsules()), layer(float32_capsules()))


def test_every_layer_of_a_network() -> None:
    network = tiny_hybrid(learn_bandwidth=True, bandwidth=3.0)
    names = [name for name, _ in network.named_parameters() if name.endswith("log_bandwidth")]
    assert names == ["stages.0.log_bandwidth", "stages.2.log_bandwidth", "class_capsules.log_bandwidth"]
    assert create_model("hybrid32", learn_bandwidth=True).class_capsules.log_bandwidth is not None
