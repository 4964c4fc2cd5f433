"""Networks: sizes, configurations, outputs, and errors."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from support import assert_near, randomised, tiny_hybrid
from torchcaps import Classified, Scores, create_model, list_models
from torchcaps.functional import list_routings
from torchcaps.models import HYBRID32, HYBRID64, BaselineCnn, HybridNetwork, Stage
from torchcaps.nn import CapsuleConv2d, ClassCapsules, PoseResidual

CIFAR = {"num_classes": 10, "in_channels": 3, "first_channels": 256}
DECODER = (16 * 10 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 1024 + 1024)


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ["frms", "frem"])
@pytest.mark.parametrize(
    ("name", "options", "total", "in_routing"),
    [
        ("hybrid64", {}, 1_238_553, 89_237),
        ("hybrid64", {"num_classes": 5, "in_channels": 1}, 1_238_553, 89_237),
        ("hybrid32", {}, 865_638, 126_050),
        ("hybrid32", {"num_classes": 10, "in_channels": 1}, 865_638, 126_050),
        ("hybrid32", CIFAR, 893_426, 132_194),
        # convolutions 1,664 + 73,856 + 295,168, activations 4,112; the rest is in routing
        ("poolcaps32", {}, 490_202, 64 * 32 * 16 + 32 * 17 + 512 * 10 * 16 + 10 * 17),
        ("poolcaps32", {"norm": "batch"}, 490_202 + 64 + 128 + 256 + 2 * 512, 115_402 + 2 * 512),
        # the same convolutions, activations 4,112; 16 capsules on a map of 4x4
        ("headcaps32", {}, 415_930, 256 * 10 * 16 + 10 * 17),
        ("headcaps32", {"class_shared": True}, 415_930 - 15 * 16 * 10 * 16, 16 * 10 * 16 + 10 * 17),
        ("headcaps64", {}, 805_093, 256 * 5 * 16 + 5 * 17),
        ("poolcaps64", {}, 858_885, 64 * 32 * 16 + 32 * 17 + 512 * 5 * 16 + 5 * 17),
    ],
    ids=str,
)
def test_parameters_of_hybrids(name: str, options: dict, total: int, in_routing: int, routing: str) -> None:
    model = create_model(name, routing=routing, **options)
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert model.parameter_count() == total
    assert model.routing_parameter_count() == in_routing


@pytest.mark.parametrize(
    ("name", "options", "total"),
    [
        ("cnn64", {}, 791_941),
        ("cnn32", {}, 393_738),
        ("cnn64", {"num_classes": 5, "in_channels": 1}, 791_941),
        ("cnn32", {"num_classes": 10, "in_channels": 1}, 393_738),
        ("cnn32", CIFAR, 632_714),
    ],
    ids=str,
)
def test_parameters_of_cnns(name: str, options: dict, total: int) -> None:
    model = create_model(name, **options)
    assert sum(parameter.numel() for parameter in model.parameters()) == model.parameter_count() == total
    assert model.routing_parameter_count() == 0


def test_the_counts_leave_the_decoder_out() -> None:
    model = create_model("hybrid32", decoder=True)
    assert model.parameter_count() == 865_638
    assert sum(parameter.numel() for parameter in model.parameters()) == 865_638 + DECODER


def test_list_models() -> None:
    assert list_models() == [
        *("cnn32", "cnn64", "headcaps32", "headcaps64"),
        *("hybrid32", "hybrid64", "poolcaps32", "poolcaps64"),
    ]


# --- structure -------------------------------------------------------------------------------------------------------


def structure(model: HybridNetwork) -> list[tuple[Any, ...]]:
    """Capsule layers as (in, out), residual blocks as (kernel,)."""
    return [
        (layer.in_capsules, layer.out_capsules) if isinstance(layer, CapsuleConv2d) else layer.conv.kernel_size[:1]
        for layer in model.stages
    ]


def test_structure() -> None:
    hybrid64, hybrid32 = create_model("hybrid64"), create_model("hybrid32")
    assert structure(hybrid64) == [(4, 8), (3,), (8, 8), (5,), (8, 16), (3,), (16, 32)]
    assert structure(hybrid32) == [(4, 8), (3,), (8, 16), (3,), (16, 32)]
    assert structure(create_model("hybrid32", **CIFAR))[0] == (16, 8)
    for model in (hybrid64, hybrid32):
        assert model.class_capsules.weight.shape[:2] == (512, model.num_classes)
        assert model.primary.pose.kernel_size == (5, 5)


@pytest.mark.parametrize("stages", [HYBRID64, HYBRID32], ids=["hybrid64", "hybrid32"])
def test_names_are_declarations(stages: tuple[Stage, ...]) -> None:
    name, size = ("hybrid64", 64) if stages is HYBRID64 else ("hybrid32", 32)
    built = HybridNetwork(stages, num_classes=5, image_size=size)
    named = create_model(name, num_classes=5)
    assert {k: v.shape for k, v in built.state_dict().items()} == {k: v.shape for k, v in named.state_dict().items()}


@pytest.mark.parametrize("size", [32, 64])
def test_poolcaps_begins_as_the_cnn_does(size: int) -> None:
    network, cnn = create_model(f"poolcaps{size}", norm="batch"), create_model(f"cnn{size}", norm="batch")
    body = cnn.layers[: len(network.body)]
    body.load_state_dict(network.body.state_dict())  # all of it, and nothing else
    image = torch.randn(2, 1, size, size)
    assert_near(network.body.eval()(image), body.eval()(image))
    last = cnn.layers[len(network.body)]
    assert network.primary.pose.weight.shape == last.conv.weight.shape
    assert structure(network) == [(16, 32)]
    assert network.class_capsules.map_size == (4, 4)


@pytest.mark.parametrize("name", ["hybrid32", "poolcaps32"])
def test_other_windows(name: str) -> None:
    stages = 3 if name == "hybrid32" else 1
    model = create_model(name, fields=[3] * stages, paddings=[1] * stages)
    assert all(layer.window.kernel_size == (3, 3) for layer in model.stages if isinstance(layer, CapsuleConv2d))
    assert model.class_capsules.map_size == (4, 4)
    single = create_model(name, fields=[3] * stages, strides=[1] * stages, paddings=[1] * stages)
    assert single.class_capsules.map_size == ((32, 32) if name == "hybrid32" else (8, 8))
    with pytest.raises(
        ValueError, match=rf"strides=\[1, 1\]: expected a number for each of the {stages} capsule layers"
    ):
        create_model(name, strides=[1, 1])


def test_residual_false() -> None:
    model = create_model("hybrid32", residual=False)
    assert not [layer for layer in model.modules() if isinstance(layer, PoseResidual)]
    residuals = 128 * 128 * 9 + 128 + 256 * 256 * 9 + 256
    assert model.parameter_count() == 865_638 - residuals
    assert model.routing_parameter_count() == 126_050


@pytest.mark.parametrize(
    ("stages", "side"),
    [
        ((), 8),
        ((Stage(capsules=3),), 4),
        ((Stage(capsules=3, field=3, stride=1), Stage(capsules=2, residual=3, field=3, stride=1)), 4),
        ((Stage(capsules=3, field=4, stride=4, residual=1), Stage(capsules=2)), 1),
        ((Stage(capsules=2, field=1, stride=1),), 8),
    ],
)
def test_own_stages(stages: tuple[Stage, ...], side: int) -> None:
    model = HybridNetwork(stages, num_classes=3, image_size=8, in_channels=2, first_channels=16)
    pose, activation = model(torch.randn(2, 2, 8, 8))
    assert model.class_capsules.map_size == (side, side)
    assert (pose.shape, activation.shape) == ((2, 3, 16), (2, 3))


@pytest.mark.parametrize("name", ["hybrid64", "hybrid32"])
@pytest.mark.parametrize("image_size", [16, 48, 96, 224])
def test_any_size_that_the_strides_divide(name: str, image_size: int) -> None:
    model = create_model(name, num_classes=2, image_size=image_size)
    side = image_size // (16 if name == "hybrid64" else 8)
    assert model.image_size == image_size
    assert model.class_capsules.weight.shape == (side * side * 32, 2, 4, 4)


@pytest.mark.parametrize("image_size", [96, 224])
def test_large_images_run(image_size: int) -> None:
    stages = tuple(Stage(capsules=1) for _ in range(5))
    model = HybridNetwork(stages, num_classes=3, in_channels=3, image_size=image_size, first_channels=16, decoder=True)
    with torch.no_grad():
        output = model(torch.randn(1, 3, image_size, image_size))
    assert output.activation.shape == (1, 3)
    assert model.reconstruct(output).shape == (1, 3, 32, 32)


@pytest.mark.parametrize("name", ["cnn64", "cnn32"])
def test_cnn_of_another_size(name: str) -> None:
    output = create_model(name, num_classes=3, in_channels=3, image_size=96, first_channels=16)(
        torch.randn(1, 3, 96, 96)
    )
    assert output.activation.shape == (1, 3)


# --- configurations --------------------------------------------------------------------------------------------------


TABLE_2 = [
    (routing, iterations, std)
    for routing in ("frms", "frem", "em")
    for iterations, std in ((1, 0.1), (2, 0.01), (2, 0.1), (2, 1.0), (3, 0.1))
]


@pytest.mark.parametrize(("routing", "iterations", "std"), TABLE_2)
def test_cells_of_table_2(routing: str, iterations: int, std: float) -> None:
    model = create_model("hybrid64", image_size=16, routing=routing, iterations=iterations, transform_std=std)
    routed = [layer for layer in model.modules() if isinstance(layer, CapsuleConv2d | ClassCapsules)]
    assert len(routed) == 5
    for layer in routed:
        assert f"routing={routing}, iterations={iterations}" in repr(layer)
        assert 1.8 * std < layer.weight.abs().max() <= 2 * std
    output = model(torch.randn(1, 1, 16, 16))
    assert output.activation.isfinite().all()
    assert output.pose.isfinite().all()


def test_options_reach_every_layer() -> None:
    options = {"kernel": "gaussian", "distance": "l2", "normalize": "sum", "bandwidth": 4.0, "step": 0.5}
    model = create_model("hybrid32", routing="frms", beta_init="paper", conv_init="torch", class_shared=True, **options)
    routed = [layer for layer in model.modules() if isinstance(layer, CapsuleConv2d | ClassCapsules)]
    for layer in routed:
        for name, value in options.items():
            assert f"{name}={value}" in repr(layer)
        assert layer.beta.abs().max() <= 0.02
    assert model.primary.pose.weight.abs().max() > 0.1  # PyTorch's: 1 / sqrt(25)
    assert model.stages[1].conv.weight.abs().max() > 0.025
    assert model.class_capsules.weight.shape == (32, 10, 4, 4)


# --- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", list_routings())
def test_hybrid_output(routing: str) -> None:
    output = tiny_hybrid(routing)(torch.randn(2, 1, 8, 8))
    assert isinstance(output, Classified)
    assert output.pose.shape == (2, 3, 16)
    assert output.activation.shape == (2, 3)
    assert (output.activation >= 0).all()
    assert (output.activation <= 1).all()


def test_cnn_is_its_formula() -> None:
    model = randomised(
        BaselineCnn((6, 5), (3, 5), num_classes=3, image_size=8, in_channels=2, first_channels=4), std=0.1
    )
    x = image = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    convs = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert [conv.kernel_size[0] for conv in convs] == [5, 3, 5, 3]
    for conv in convs[:-1]:
        x = F.max_pool2d(F.conv2d(x, conv.weight, conv.bias, padding=conv.kernel_size[0] // 2).clamp(min=0), 2)
    logits = F.conv2d(x, convs[-1].weight, convs[-1].bias, padding=1).mean((2, 3))
    output = model(image)
    assert isinstance(output, Scores)
    assert_near(output.logits, logits, 1e-12)
    assert_near(output.activation, logits.exp() / logits.exp().sum(1, keepdim=True), 1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_reconstruct(channels: int) -> None:
    model = tiny_hybrid(decoder=True, in_channels=channels)
    output, label = model(torch.randn(4, channels, 8, 8)), torch.tensor([0, 2, 1, 2])
    images = {
        "of output": model.reconstruct(output),
        "of output and label": model.reconstruct(output, label),
        "of pose": model.reconstruct(output.pose),
        "of pose and label": model.reconstruct(output.pose, label=label),
    }
    for image in images.values():
        assert image.shape == (4, channels, 32, 32)
        assert (image >= 0).all()
        assert (image <= 1).all()
    predicted = output.activation.argmax(1)
    assert torch.equal(images["of output"], model.reconstruct(output.pose, predicted))
    assert torch.equal(images["of output and label"], images["of pose and label"])
    assert not torch.equal(images["of output and label"], model.reconstruct(output, (label + 1) % 3))


def test_reconstruct_wants_a_decoder() -> None:
    with pytest.raises(RuntimeError, match="decoder=True"):
        tiny_hybrid().reconstruct(torch.zeros(1, 3, 16))


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("resnet", {}, ValueError, "'resnet'.*cnn32, cnn64, headcaps32"),
        ("hybrid32", {"image_size": 36}, ValueError, "image_size=36.*multiple of 8"),
        ("hybrid64", {"image_size": 72}, ValueError, "image_size=72.*multiple of 16"),
        ("cnn32", {"image_size": 36}, ValueError, "image_size=36.*multiple of 8"),
        ("cnn64", {"image_size": 72}, ValueError, "image_size=72.*multiple of 16"),
        ("hybrid32", {"image_size": 0}, ValueError, "image_size=0.*at least 1"),
        ("hybrid32", {"image_size": (32, 32)}, ValueError, r"image_size=\(32, 32\).*whole number"),
        ("hybrid32", {"first_channels": 72}, ValueError, "first_channels=72.*multiple of 16"),
        ("hybrid32", {"first_channels": 0}, ValueError, "=0.*at least 1"),
        ("hybrid32", {"num_classes": 0}, ValueError, "num_classes=0.*at least 1"),
        ("cnn32", {"in_channels": 0}, ValueError, "in_channels=0.*at least 1"),
        ("hybrid32", {"routing": "fern"}, ValueError, "'fern'.*expected one of.*frem"),
        ("hybrid32", {"iterations": 0}, ValueError, "iterations=0.*at least 1"),
        ("hybrid32", {"conv_init": "zero"}, ValueError, "'zero'.*paper, torch"),
        ("cnn32", {"conv_init": "zero"}, ValueError, "'zero'.*paper, torch"),
        ("hybrid32", {"step": 1.0}, TypeError, "'step'.*kernel, distance"),
        ("cnn32", {"routing": "frem"}, TypeError, "'routing'.*first_channels"),
        ("hybrid32", {"clases": 3}, TypeError, "'clases'.*first_channels"),
        ("cnn32", {"first_channels": 0}, ValueError, "first_channels=0.*at least 1"),
    ],
    ids=str,
)
def test_create_model_errors(name: str, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        create_model(name, **options)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"field": 9}, "9x9.*8x8"),
        ({"capsules": 0}, "capsules=0.*at least 1"),
        ({"residual": 0}, "residual=0.*at least 1"),
        ({"stride": 3}, "image_size=8.*multiple of 3"),
        ({"stride": 0}, "stride=0.*at least 1"),
        ({"stride": 2.5}, r"stride=2\.5.*whole number"),
    ],
    ids=str,
)
def test_stage_errors(stage: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HybridNetwork([Stage(**{"capsules": 2, **stage})], num_classes=3, image_size=8)


MODELS = {"hybrid": tiny_hybrid(), "cnn": BaselineCnn((4,), (3,), num_classes=3, image_size=8, first_channels=4)}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (torch.zeros(1, 1, 7, 8), ValueError, r"\[1, 1, 7, 8\].*expected \[B, 1, 8, 8\].*image_size"),
        (torch.zeros(1, 3, 8, 8), ValueError, r"\[1, 3, 8, 8\].*expected \[B, 1, 8, 8\].*in_channels"),
        (torch.zeros(1, 8, 8), ValueError, r"\[1, 8, 8\].*expected \[B, 1, 8, 8\]"),
        (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), TypeError, r"torch\.uint8.*torch\.float32.*\.to\("),
        (torch.zeros(1, 1, 8, 8, dtype=torch.float64), TypeError, r"torch\.float64.*torch\.float32"),
        (torch.zeros(1, 1, 8, 8, device="meta"), ValueError, r"meta.*cpu.*\.to\("),
    ],
    ids=["size", "channels", "dimensions", "uint8", "float64", "device"],
)
def test_image_errors(model: torch.nn.Module, image: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model(image)
