"""A wrong size, type, device or option: the error says what came and what was wanted."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from support import random_capsules, tiny_hybrid
from torchcaps import Capsules
from torchcaps.functional import list_routings
from torchcaps.nn import CapsuleConv2d, ClassCapsules, Decoder, PoseResidual, PrimaryCapsules

Make = Callable[..., Any]


def capsules(n: int = 2, height: int = 4, width: int = 4, dtype: torch.dtype = torch.float32) -> Capsules:
    return random_capsules(1, n, height, width, dtype=dtype)


LAYERS = [CapsuleConv2d(2, 3), ClassCapsules(2, 3, 4), PoseResidual(2)]
each_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
each_routed = pytest.mark.parametrize(
    "make", [CapsuleConv2d, lambda n, out, **o: ClassCapsules(n, out, 4, **o)], ids=["CapsuleConv2d", "ClassCapsules"]
)


# --- input -----------------------------------------------------------------------------------------------------------


@each_layer
def test_channels(layer: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match=r"\[1, 48, 4, 4\].*expected \[B, 32, H, W\].*2 capsules"):
        layer(capsules(3))


@each_layer
def test_dimensions(layer: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match=r"\[32, 4, 4\].*expected \[B, 32, H, W\]"):
        layer(Capsules(*(maps[0] for maps in capsules())))


@each_layer
def test_activation_of_another_shape(layer: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match=r"activation.*\[1, 2, 4, 5\].*expected \[1, 2, 4, 4\]"):
        layer(Capsules(capsules().pose, capsules(2, 4, 5).activation))


@each_layer
def test_not_capsules(layer: torch.nn.Module) -> None:
    with pytest.raises(TypeError, match=r"Tensor.*expected Capsules"):
        layer(capsules().pose)


@each_layer
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64, torch.bfloat16])
def test_dtype(layer: torch.nn.Module, dtype: torch.dtype) -> None:
    good = capsules()
    for wrong in (Capsules(good.pose.to(dtype), good.activation), Capsules(good.pose, good.activation.to(dtype))):
        with pytest.raises(TypeError, match=rf"(pose|activation) is {dtype}.*torch\.float32.*\.to\("):
            layer(wrong)


@each_layer
def test_device(layer: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match=r"meta.*cpu.*\.to\("):
        layer(Capsules(*(maps.to("meta") for maps in capsules())))


@pytest.mark.parametrize(
    ("window", "size", "message"),
    [
        ((3,), (2, 4), "3x3.*2x4.*padding 0x0"),
        (((2, 5), 1, (0, 1)), (4, 2), "2x5.*4x2.*padding 0x1"),
        ((2,), (1, 1), "2x2.*1x1"),
        ((2,), (0, 4), "2x2.*0x4"),
    ],
)
def test_map_too_small_for_the_field(window: tuple, size: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapsuleConv2d(2, 3, *window)(capsules(2, *size))


@pytest.mark.parametrize("shared", [False, True])
def test_map_size_of_class_capsules(shared: bool) -> None:
    with pytest.raises(ValueError, match=r"4x5.*expected 4x4"):
        ClassCapsules(2, 3, 4, shared=shared)(capsules(2, 4, 5))


def test_class_capsules_want_a_map_size() -> None:
    with pytest.raises(ValueError, match=r"map_size.*shared=True"):
        ClassCapsules(2, 3)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (torch.zeros(1, 3, 4, 4), ValueError, r"\[1, 3, 4, 4\].*expected \[B, 1, H, W\]"),
        (torch.zeros(1, 4, 4), ValueError, r"\[1, 4, 4\].*expected \[B, 1, H, W\]"),
        (torch.zeros(1, 1, 4, 4, dtype=torch.uint8), TypeError, r"torch\.uint8.*torch\.float32"),
        (torch.zeros(1, 1, 4, 4, dtype=torch.float64), TypeError, r"torch\.float64.*torch\.float32"),
        (torch.zeros(1, 1, 4, 4, device="meta"), ValueError, "meta.*cpu"),
    ],
    ids=["channels", "dimensions", "uint8", "float64", "device"],
)
def test_primary_capsules(image: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PrimaryCapsules(1, 2)(image)


@pytest.mark.parametrize(
    ("pose", "label", "error", "message"),
    [
        (torch.zeros(2, 4, 16), None, ValueError, r"\[2, 4, 16\].*expected \[B, 3, 16\]"),
        (torch.zeros(2, 48), None, ValueError, r"\[2, 48\].*expected \[B, 3, 16\]"),
        (torch.zeros(2, 3, 16).double(), None, TypeError, r"torch\.float64.*torch\.float32"),
        (torch.zeros(2, 3, 16), torch.tensor([0]), ValueError, r"label.*\[1\].*expected \[2\]"),
    ],
    ids=["classes", "dimensions", "dtype", "label"],
)
def test_decoder(pose: torch.Tensor, label: torch.Tensor | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Decoder(3)(pose, label)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (torch.tensor([0.0, 1.0]), r"label.*torch\.float32.*torch\.int64"),
        (torch.tensor([0, 3]), "label.*3"),
        (torch.tensor([0, 1], device="meta"), "label.*meta.*cpu"),
    ],
    ids=["dtype", "range", "device"],
)
def test_decoder_label(label: torch.Tensor, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Decoder(3)(torch.zeros(2, 3, 16), label)


def test_autocast_still_wants_floating_point() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(TypeError, match=r"torch\.uint8"):
        tiny_hybrid()(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))


# --- options ---------------------------------------------------------------------------------------------------------


@each_routed
@pytest.mark.parametrize("routing", list_routings())
@pytest.mark.parametrize("iterations", [0, -1, 1.5, True])
def test_iterations(make: Make, routing: str, iterations: object) -> None:
    with pytest.raises(ValueError, match=f"iterations={iterations}.*expected.*at least 1"):
        make(2, 3, routing=routing, iterations=iterations)


@each_routed
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"routing": "fern"}, ValueError, "'fern'.*expected one of.*em, frem, frms"),
        ({"kernel": "cosine"}, ValueError, "'cosine'.*expected one of epanechnikov, gaussian"),
        ({"kernel": 3}, TypeError, r"kernel=3.*value.*derivative.*clipped"),
        ({"distance": "l3"}, ValueError, "'l3'.*expected one of l1, l2, inner"),
        ({"normalize": "max"}, ValueError, "'max'.*expected one of softmax, sum"),
        ({"bandwidth": 0}, ValueError, "bandwidth=0.*positive"),
        ({"bandwidth": torch.ones(())}, TypeError, "bandwidth is a tensor.*expected a number; learn_bandwidth=True"),
        ({"learn_bandwidth": True, "bandwidth": -1}, ValueError, "bandwidth=-1.*positive"),
        ({"learn_bandwidth": True, "routing": "em"}, ValueError, "'em' has no bandwidth, expected frem or frms"),
        ({"activation_bandwidth": 0}, ValueError, "activation_bandwidth=0.*positive"),
        ({"activation_kernel": "cosine"}, ValueError, "activation_kernel='cosine'.*epanechnikov, gaussian"),
        ({"activation_kernel": 3}, TypeError, r"activation_kernel=3.*value.*derivative.*clipped"),
        ({"step": 0.5}, TypeError, "'frem'.*'step'.*bandwidth, distance, iterations, kernel, normalize"),
        ({"routing": "em", "kernel": "gaussian"}, TypeError, "'em'.*'kernel'.*final_lambda"),
        ({"routing": "em", "variance_floor": 0}, ValueError, "variance_floor=0.*positive"),
        ({"transform_std": 0}, ValueError, "transform_std=0.*positive"),
        ({"beta_init": "one"}, ValueError, "'one'.*expected one of neutral, paper"),
    ],
    ids=str,
)
def test_options(make: Make, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(2, 3, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding": -1}, "padding=-1.*at least 0"),
        ({"padding": (0, -2)}, r"padding=\(0, -2\).*at least 0"),
        ({"stride": 0}, "stride=0.*at least 1"),
        ({"kernel_size": 0}, "kernel_size=0.*at least 1"),
        ({"kernel_size": (2, 2, 2)}, r"kernel_size=\(2, 2, 2\).*two"),
        ({"kernel_size": 2.0}, r"kernel_size=2\.0.*whole number"),
    ],
    ids=str,
)
def test_window(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapsuleConv2d(2, 3, **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CapsuleConv2d(0, 3), "in_capsules=0"),
        (lambda: CapsuleConv2d(2, 0), "out_capsules=0"),
        (lambda: CapsuleConv2d(2.5, 3), r"in_capsules=2\.5"),
        (lambda: ClassCapsules(2, 0, 4), "=0"),
        (lambda: ClassCapsules(2, 3, 0), "map_size=0"),
        (lambda: PoseResidual(0), "capsules=0"),
        (lambda: PrimaryCapsules(0, 2), "in_channels=0"),
        (lambda: PrimaryCapsules(1, 0), "capsules=0"),
        (lambda: Decoder(0), "classes=0"),
        (lambda: Decoder(3, out_channels=0), "out_channels=0"),
    ],
)
def test_sizes(make: Make, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}.*expected a whole number of at least 1"):
        make()


@pytest.mark.parametrize("make", [lambda **o: PrimaryCapsules(1, 2, **o), lambda **o: PoseResidual(2, **o)])
def test_conv_init(make: Make) -> None:
    with pytest.raises(ValueError, match=r"'zero'.*expected one of paper, torch"):
        make(conv_init="zero")


@each_layer
def test_meta_device_forward(layer: torch.nn.Module) -> None:
    moved = copy.deepcopy(layer).to("meta")
    assert moved(Capsules(*(maps.to("meta") for maps in capsules()))).pose.device.type == "meta"
