"""Layers against the oracle, against plain formulae, and against each other."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from support import assert_near, oracle_conv, oracle_route, random_capsules, randomised, tiny_hybrid
from torchcaps import Capsules
from torchcaps.functional import Mahalanobis, frem, list_routings
from torchcaps.nn import CapsuleConv2d, ClassCapsules, Decoder, PoseResidual, PrimaryCapsules

ROUTINGS = list_routings()
USES_INPUT_ACTIVATION = [name for name in ROUTINGS if name not in ("agreement", "frms_variant")]
WINDOWS = [  # kernel size, stride, padding
    (1, 1, 0),
    (2, 2, 0),
    (2, 1, 1),
    (3, 1, 0),
    (3, 2, 1),
    ((2, 3), (1, 2), 0),
    ((2, 3), 2, (0, 1)),
]


def layer_to_layer(n: int, **options: object) -> dict[str, torch.nn.Module]:
    """One of each layer from capsules to capsules of the same number."""
    return {"conv": CapsuleConv2d(n, n, 2, 1, **options), "residual": PoseResidual(n)}


# --- CapsuleConv2d ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_conv_is_the_oracles(routing: str, window: tuple) -> None:
    layer = randomised(CapsuleConv2d(2, 3, *window, routing=routing))
    capsules = random_capsules(1, 2, 4, 5)
    assert_near(tuple(layer(capsules)), oracle_conv(layer, capsules, routing, window, iterations=2)[:2])


@settings(max_examples=15, deadline=None)
@given(
    routing=st.sampled_from(ROUTINGS),
    batch=st.integers(1, 2),
    n=st.integers(1, 2),
    out=st.integers(1, 3),
    size=st.tuples(st.integers(3, 5), st.integers(3, 5)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_conv_is_the_oracles_for_any_shape(routing, batch, n, out, size, kernel, stride, padding) -> None:
    layer = randomised(CapsuleConv2d(n, out, kernel, stride, padding, routing=routing))
    capsules = random_capsules(batch, n, *size)
    expected = oracle_conv(layer, capsules, routing, (kernel, stride, padding), iterations=2)[:2]
    assert_near(tuple(layer(capsules)), expected)


@pytest.mark.parametrize(
    ("routing", "options"),
    [
        ("frem", {"iterations": 1}),
        ("frem", {"iterations": 3, "kernel": "gaussian", "bandwidth": 9.0}),
        ("frem", {"distance": "l2", "bandwidth": 30.0}),
        ("frem", {"distance": "inner"}),
        ("frem", {"normalize": "sum", "bandwidth": 12.0}),
        ("frem", {"normalize": "sum", "bandwidth": 12.0, "kernel": "gaussian"}),
        ("frem", {"activation_kernel": "gaussian"}),
        (
            "frem",
            {"normalize": "sum", "bandwidth": 12.0, "activation_kernel": "epanechnikov", "activation_bandwidth": 9.0},
        ),
        ("frms", {"iterations": 3, "step": 0.3}),
        ("frms", {"activation_bandwidth": 3.0}),
        ("frms", {"kernel": "gaussian", "distance": "l2", "bandwidth": 20.0, "step": 2.0}),
        ("frms", {"normalize": "sum", "bandwidth": 12.0}),
        ("em", {"iterations": 3, "final_lambda": 0.1, "lambda_decay": 0.5}),
        ("em", {"variance_floor": 2.0}),
        ("agreement", {"iterations": 3}),
        ("frms_variant", {"iterations": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["conv", "classes"])
def test_options_reach_the_method(kind: str, routing: str, options: dict) -> None:
    capsules = random_capsules(1, 2, 2, 3)
    make = {
        "conv": lambda **o: CapsuleConv2d(2, 3, (2, 3), routing=routing, **o),
        "classes": lambda **o: ClassCapsules(2, 3, (2, 3), routing=routing, **o),
    }[kind]
    layer, plain = randomised(make(**options)), randomised(make())
    pose, activation, _ = oracle_conv(layer, capsules, routing, ((2, 3), 1, 0), **{"iterations": 2, **options})
    assert_near(layer(capsules).pose.reshape(3, 16), pose.reshape(3, 16))
    assert_near(layer(capsules).activation.reshape(3), activation.reshape(3))
    assert not torch.allclose(layer(capsules).activation, plain(capsules).activation, rtol=1e-6, atol=0)


def test_own_distance_and_kernel_objects_reach_the_method() -> None:
    class Wide:
        clipped = False

        def value(self, x: torch.Tensor) -> torch.Tensor:
            return 1 - x / 5

        def derivative(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full_like(x, -1 / 5)

    capsules = random_capsules(1, 2, 2, 2)
    own = randomised(CapsuleConv2d(2, 3, kernel=Wide(), distance=lambda u, v: 2 * (u - v).abs().sum(-1)))
    named = randomised(CapsuleConv2d(2, 3, bandwidth=2.5))
    # eq. 8 adds beta0 to the distance before the division by the bandwidth, so it has to follow the distance's factor
    with torch.no_grad():
        own.beta0.mul_(2)
    assert_near(tuple(own(capsules)), tuple(named(capsules)))

    precision = torch.rand(16, dtype=torch.float64)
    layer = randomised(CapsuleConv2d(2, 3, distance=Mahalanobis(precision)))
    expected = oracle_conv(layer, capsules, "frem", (2, 2, 0), distance=("mahalanobis", precision.numpy()))
    assert_near(tuple(layer(capsules)), expected[:2])


@pytest.mark.parametrize("routing", ROUTINGS)
def test_output_is_channels_last(routing: str) -> None:
    output = CapsuleConv2d(2, 3, routing=routing)(random_capsules(2, 2, 6, 8, dtype=torch.float32))
    for maps in output:
        assert maps.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layer", [CapsuleConv2d(2, 3, 3, 1, 1), ClassCapsules(2, 3, (4, 5)), PoseResidual(2)], ids=str)
def test_input_memory_format_does_not_matter(layer: torch.nn.Module) -> None:
    capsules = random_capsules(2, 2, 4, 5)
    last = Capsules(*(maps.to(memory_format=torch.channels_last) for maps in capsules))
    strided = Capsules(*(maps.repeat_interleave(2, 3)[..., ::2] for maps in capsules))
    layer = randomised(layer)
    assert_near(tuple(layer(last)), tuple(layer(capsules)), 1e-12)
    assert_near(tuple(layer(strided)), tuple(layer(capsules)), 1e-12)


@pytest.mark.parametrize("routing", USES_INPUT_ACTIVATION)
@pytest.mark.parametrize("kind", ["conv", "classes"])
def test_a_capsule_switched_off_has_no_vote(kind: str, routing: str) -> None:
    layer = randomised(
        {"conv": CapsuleConv2d(2, 3, 2, routing=routing), "classes": ClassCapsules(2, 3, 2, routing=routing)}[kind]
    )
    pose, activation = random_capsules(1, 2, 2, 2)
    activation[0, 1, 0, 1] = 0  # in the field: row 0, column 1, capsule 1, i.e. input 3 of 8
    elsewhere = pose.clone()
    elsewhere[0, 16:, 0, 1] = 50 * torch.randn(16, dtype=torch.float64)
    output = layer(Capsules(pose, activation))
    assert_near(tuple(layer(Capsules(elsewhere, activation))), tuple(output))

    # and equals the field without that capsule
    matrices = pose[0].view(2, 4, 4, 2, 2).permute(3, 4, 0, 1, 2).reshape(8, 1, 4, 4).numpy()
    votes = (matrices @ layer.weight.detach().numpy()).reshape(8, 3, 16)
    parameters = {name: p.detach().numpy() for name, p in layer.named_parameters() if name != "weight"}
    a = activation[0].permute(1, 2, 0).reshape(8).numpy()
    expected = oracle_route(routing, np.delete(votes, 3, 0), np.delete(a, 3), parameters, iterations=2)
    assert_near(output.pose.reshape(3, 16), expected[0])
    assert_near(output.activation.reshape(3), expected[1])


@pytest.mark.parametrize("routing", ROUTINGS)
def test_padding_is_capsules_of_zero(routing: str) -> None:
    padded = randomised(CapsuleConv2d(2, 3, 3, 2, (1, 2), routing=routing))
    plain = randomised(CapsuleConv2d(2, 3, 3, 2, 0, routing=routing))
    capsules = random_capsules(2, 2, 5, 4)
    wider = Capsules(*(F.pad(maps, (2, 2, 1, 1)) for maps in capsules))
    assert_near(tuple(padded(capsules)), tuple(plain(wider)))


# --- ClassCapsules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ROUTINGS)
def test_class_capsules_are_one_field_over_the_map(routing: str) -> None:
    classes = randomised(ClassCapsules(2, 5, (3, 4), routing=routing))
    conv = randomised(CapsuleConv2d(2, 5, (3, 4), routing=routing))
    conv.load_state_dict(classes.state_dict())
    capsules = random_capsules(2, 2, 3, 4)
    pose, activation = classes(capsules)
    assert pose.shape == (2, 5, 16)
    assert_near(pose, conv(capsules).pose.view(2, 5, 16))
    assert_near(activation, conv(capsules).activation.view(2, 5))


@pytest.mark.parametrize("coordinates", [False, True])
def test_shared_matrices_are_the_same_at_every_place(coordinates: bool) -> None:
    shared = randomised(ClassCapsules(2, 5, shared=True, coordinates=coordinates))
    own = randomised(ClassCapsules(2, 5, (3, 4), coordinates=coordinates))
    assert shared.weight.shape == (2, 5, 4, 4)
    own.load_state_dict({**shared.state_dict(), "weight": shared.weight.repeat(12, 1, 1, 1)})
    capsules = random_capsules(2, 2, 3, 4)
    assert_near(tuple(shared(capsules)), tuple(own(capsules)))
    assert shared(random_capsules(2, 2, 5, 2)).pose.shape == (2, 5, 16)  # a map of any size


@pytest.mark.parametrize("shared", [False, True])
def test_coordinates_are_added_to_the_votes(shared: bool) -> None:
    height, width, n, classes = 3, 4, 2, 3
    layer = randomised(ClassCapsules(n, classes, (height, width), shared=shared, coordinates=True))
    capsules = random_capsules(1, n, height, width)
    weight = layer.weight.detach().numpy()
    votes, fields = [], []
    for row in range(height):
        for column in range(width):
            for c in range(n):
                place = 0 if shared else row * width + column
                pose = capsules.pose[0, 16 * c : 16 * c + 16, row, column].numpy().reshape(4, 4)
                vote = pose @ weight[place * n + c]  # [classes, 4, 4]
                vote[:, 0, 3] += (row + 0.5) / height
                vote[:, 1, 3] += (column + 0.5) / width
                votes.append(vote.reshape(classes, 16))
                fields.append(capsules.activation[0, c, row, column].item())
    beta, beta0 = layer.beta.detach().numpy(), layer.beta0.detach().numpy()
    expected = oracle_route("frem", np.array(votes), np.array(fields), {"beta": beta, "beta0": beta0})
    pose, activation = layer(capsules)
    assert_near(pose[0], expected[0])
    assert_near(activation[0], expected[1])


# --- layers without routing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_pose_residual(kernel_size: int) -> None:
    layer = randomised(PoseResidual(2, kernel_size), std=0.1)
    capsules = random_capsules(2, 2, 4, 5)
    pose, activation = layer(capsules)
    conv = F.conv2d(capsules.pose, layer.conv.weight, layer.conv.bias, padding=kernel_size // 2)
    assert_near(pose, (capsules.pose + conv).clamp(min=0), 1e-12)
    assert torch.equal(activation, capsules.activation)


def test_primary_capsules() -> None:
    layer = randomised(PrimaryCapsules(3, 2), std=0.2)
    image = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    pose, activation = layer(image)
    expected = F.conv2d(image, layer.pose.weight, layer.pose.bias, padding=2).clamp(min=0)
    assert layer.pose.weight.shape == (32, 3, 5, 5)
    assert_near(pose, expected, 1e-12)
    logit = torch.einsum("bchw,nc->bnhw", expected, layer.activation.weight[:, :, 0, 0])
    assert_near(activation, 1 / (1 + torch.exp(-logit - layer.activation.bias.view(1, 2, 1, 1))), 1e-12)


def test_decoder_is_three_linear_layers() -> None:
    decoder = randomised(Decoder(4, 3), std=0.05)
    pose, label = torch.randn(2, 4, 16, dtype=torch.float64), torch.tensor([2, 0])
    w1, b1, w2, b2, w3, b3 = decoder.parameters()
    assert (w1.shape, w2.shape, w3.shape) == ((512, 64), (1024, 512), (3 * 32 * 32, 1024))
    masked = torch.zeros_like(pose)
    masked[0, 2], masked[1, 0] = pose[0, 2], pose[1, 0]
    for seen, kwargs in ((pose, {}), (masked, {"label": label})):
        hidden = ((seen.flatten(1) @ w1.T + b1).clamp(min=0) @ w2.T + b2).clamp(min=0)
        expected = torch.sigmoid(hidden @ w3.T + b3).view(2, 3, 32, 32)
        assert_near(decoder(pose, **kwargs), expected, 1e-12)


def test_decoder_sees_only_the_labels_pose() -> None:
    decoder = randomised(Decoder(4), std=0.05)
    pose = torch.randn(2, 4, 16, dtype=torch.float64, requires_grad=True)
    decoder(pose, torch.tensor([1, 3])).sum().backward()
    assert pose.grad is not None
    seen = pose.grad.abs().sum(-1) > 0
    assert seen.tolist() == [[False, True, False, False], [False, False, False, True]]


# --- what every layer does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["conv", "residual", "classes"])
@pytest.mark.parametrize("second", ["conv", "residual"])
@pytest.mark.parametrize("first", ["conv", "residual"])
def test_layers_stack(first: str, second: str, last: str) -> None:
    layers = [layer_to_layer(2)[first], layer_to_layer(2)[second]]
    side = 5 - [first, second].count("conv")
    layers.append(ClassCapsules(2, 3, side) if last == "classes" else layer_to_layer(2)[last])
    network = torch.nn.Sequential(PrimaryCapsules(1, 2), *layers)
    output = network(torch.randn(2, 1, 5, 5))
    output.activation.sum().backward()
    assert all(maps.isfinite().all() for maps in output)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_any_batch_size(routing: str, batch: int) -> None:
    network = tiny_hybrid(routing).double()
    image = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    pose, activation = network(image[:batch])
    assert pose.shape == (batch, 3, 16)
    assert activation.shape == (batch, 3)
    assert_near(pose, network(image).pose[:batch], 1e-9)
    activation.sum().backward()


@pytest.mark.parametrize("routing", ROUTINGS)
def test_repr_tells_sizes_and_routing(routing: str) -> None:
    conv = repr(CapsuleConv2d(4, 8, 3, (1, 2), 1, routing=routing, iterations=3))
    for part in ("CapsuleConv2d", "4, 8", "kernel_size=(3, 3)", "stride=(1, 2)", "padding=(1, 1)"):
        assert part in conv
    classes = repr(ClassCapsules(4, 10, 6, routing=routing, iterations=3))
    for part in ("ClassCapsules", "4, 10", "map_size=(6, 6)"):
        assert part in classes
    for text in (conv, classes):
        assert f"routing={routing}" in text
        assert "iterations=3" in text
    assert "kernel=gaussian" in repr(CapsuleConv2d(4, 8, routing="frms", kernel="gaussian"))


@pytest.mark.parametrize("how", ["state_dict", "deepcopy"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_copies(how: str, routing: str) -> None:
    network, image = tiny_hybrid(routing, decoder=True), torch.randn(2, 1, 8, 8)
    if how == "deepcopy":
        twin = copy.deepcopy(network)
    else:
        twin = tiny_hybrid(routing, decoder=True)
        twin.load_state_dict(network.state_dict())
    expected = network(image)
    assert_near(tuple(twin(image)), tuple(expected), 1e-6)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert_near(tuple(network(image)), tuple(expected), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_to_dtype(routing: str, dtype: torch.dtype) -> None:
    network = tiny_hybrid(routing, class_coordinates=True).to(dtype)
    pose, activation = network(torch.randn(2, 1, 8, 8).to(dtype))
    assert pose.dtype == activation.dtype == dtype
    assert pose.isfinite().all()
    assert activation.isfinite().all()


@pytest.mark.parametrize("routing", ROUTINGS)
def test_autocast(routing: str) -> None:
    network = tiny_hybrid(routing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pose, activation = network(torch.randn(2, 1, 8, 8))
    (pose.float().square().mean() + activation.float()[:, 0].mean()).backward()
    assert pose.isfinite().all()
    assert activation.isfinite().all()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None or name.startswith("primary.activation"), name
        assert parameter.grad is None or parameter.grad.isfinite().all()
        assert parameter.dtype == torch.float32


@pytest.mark.parametrize("routing", ROUTINGS)
def test_compiled_conv_is_the_eager_one(routing: str) -> None:
    torch._dynamo.reset()
    layer, capsules = randomised(CapsuleConv2d(2, 3, 3, 2, 1, routing=routing)), random_capsules(2, 2, 4, 5)
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        pose, activation = run(capsules)
        grads = torch.autograd.grad(pose.square().sum() + activation[:, 0].sum(), list(layer.parameters()))
        results.append((pose.detach(), activation.detach(), *grads))
    assert_near(results[1], results[0])


def test_compiled_network_is_the_eager_one() -> None:
    torch._dynamo.reset()
    network, image = tiny_hybrid(class_shared=True, class_coordinates=True).double(), torch.randn(2, 1, 8, 8).double()
    results = []
    for run in (network, torch.compile(network, backend="aot_eager", fullgraph=True)):
        pose, activation = run(image)
        grads = torch.autograd.grad(pose.square().sum() + activation[:, 0].sum(), list(network.parameters()))
        results.append((pose.detach(), activation.detach(), *grads))
    assert_near(results[1], results[0])


# --- initialisation --------------------------------------------------------------------------------------------------

TRUNCATED = 0.8796  # deviation of a standard normal cut at +-2


def assert_truncated_normal(values: torch.Tensor, std: float) -> None:
    assert values.abs().max() <= 2 * std
    assert values.abs().max() > 1.9 * std
    assert values.std().item() == pytest.approx(TRUNCATED * std, rel=0.05)
    assert values.mean().item() == pytest.approx(0, abs=0.05 * std)


@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_transform_std(std: float) -> None:
    torch.manual_seed(0)
    assert_truncated_normal(CapsuleConv2d(8, 16, transform_std=std).weight, std)
    assert_truncated_normal(ClassCapsules(8, 10, 4, transform_std=std).weight, std)


def test_transform_std_is_a_tenth_by_default() -> None:
    torch.manual_seed(0)
    assert_truncated_normal(CapsuleConv2d(8, 16).weight, 0.1)
    assert_truncated_normal(ClassCapsules(8, 10, 4).weight, 0.1)


@pytest.mark.parametrize("make", [lambda **o: PrimaryCapsules(3, 8, **o), lambda **o: PoseResidual(4, **o), Decoder])
def test_conv_init(make) -> None:
    torch.manual_seed(0)
    classes = {"num_classes": 4} if make is Decoder else {}
    for layer in make(conv_init="paper", **classes).modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear) and layer.weight.numel() > 2000:
            assert_truncated_normal(layer.weight, 0.01)
            assert 0 < layer.bias.abs().max() <= 0.02
    for layer in make(conv_init="torch", **classes).modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear) and layer.weight.numel() > 2000:
            bound = layer.weight[0].numel() ** -0.5  # PyTorch: uniform within 1 / sqrt(fan in)
            assert 0.99 * bound < layer.weight.abs().max() <= bound


def test_beta_init() -> None:
    neutral = CapsuleConv2d(4, 8)
    assert (neutral.beta == 1).all()
    assert neutral.beta.shape == (8, 16)
    assert (neutral.beta0 == 0).all()
    assert neutral.beta0.shape == (8,)
    paper = CapsuleConv2d(4, 32, beta_init="paper")
    assert_truncated_normal(paper.beta, 0.01)
    assert 0 < paper.beta0.abs().max() <= 0.02
    em = ClassCapsules(4, 8, 2, routing="em")
    assert {name: p.shape for name, p in em.named_parameters()} == {
        "weight": (16, 8, 4, 4),
        "beta_u": (8,),
        "beta_a": (8,),
    }


def test_same_seed_same_start() -> None:
    pair = []
    for _ in range(2):
        torch.manual_seed(3)
        pair.append(tiny_hybrid().state_dict())
    assert all(torch.equal(pair[0][name], pair[1][name]) for name in pair[0])


def test_layer_is_the_function_on_its_votes() -> None:
    layer, capsules = randomised(CapsuleConv2d(1, 3, 1, 1)), random_capsules(2, 1, 3, 3)
    pose = capsules.pose.permute(0, 2, 3, 1).reshape(2, 3, 3, 1, 1, 4, 4)
    votes = (pose @ layer.weight).flatten(-2)  # [2, 3, 3, 1, 3, 16]
    expected = frem(votes, capsules.activation.permute(0, 2, 3, 1)).pose
    assert_near(layer(capsules).pose, expected.flatten(3).permute(0, 3, 1, 2))


@pytest.mark.parametrize("channels", [1, 3])
def test_maps_are_channels_last_from_the_first_convolution_on(channels: int) -> None:
    capsules = PrimaryCapsules(channels, 2)(torch.randn(2, channels, 8, 8))
    assert capsules.pose.is_contiguous(memory_format=torch.channels_last)
    assert PoseResidual(2)(capsules).pose.is_contiguous(memory_format=torch.channels_last)
