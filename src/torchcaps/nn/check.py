"""Whether each backend computes what the reference does: some layers, their outputs and every gradient by name.

The measure is the reference in float64 on the CPU. Float32 cannot reach it, so the reference also runs in float32 on
the CPU: a backend may be off by ``TIMES`` what that loses in the same value, and always by ``LEAST``. (Terms added one
after the other lose some sqrt(n) times as much as PyTorch's sums by halves, and the largest field has 512 of them.)
Errors are normwise: the largest one, relative to the largest number of the value.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.functional.registry import list_routings, routing_method
from torchcaps.nn.classes import ClassCapsules
from torchcaps.nn.conv import CapsuleConv2d
from torchcaps.nn.primary import PrimaryCapsules
from torchcaps.nn.residual import PoseResidual
from torchcaps.nn.routed import RoutedLayer
from torchcaps.ops.backend import BACKENDS, BackendUnavailableError, use_backend
from torchcaps.types import POSE_SIZE, Capsules

TIMES, LEAST = 30.0, 5e-5
CONVOLVING = ("native", "reference")  # the other backends route, and leave primary head and residual block to PyTorch
SEED = 23  # with it no vote is so near to a pose that rounding decides about the sign of an l1 distance


@dataclass(frozen=True)
class Case:
    """A layer with what comes to it; all numbers are float32's, so that every run has the same ones."""

    layer: str
    method: str  # of routing; "" for a layer without
    module: nn.Module
    inputs: dict[str, Tensor]


@dataclass(frozen=True)
class Value:
    """An output or a gradient: how far it is off, and how far it may be."""

    name: str
    error: float
    allowed: float

    @property
    def differs(self) -> bool:
        return not self.error <= self.allowed  # nan differs


@dataclass(frozen=True)
class Comparison:
    """A backend on a device in one case: its values, or why it does not serve, or what it raised."""

    device: str
    backend: str
    layer: str
    method: str
    values: list[Value] = field(default_factory=list)
    refused: str = ""
    raised: str = ""

    @property
    def worst(self) -> Value:
        """The value that is nearest to its limit, or farthest beyond it."""
        return max(self.values, key=lambda value: math.inf if math.isnan(value.error) else value.error / value.allowed)

    @property
    def failures(self) -> list[str]:
        """What is wrong, each in a sentence."""
        place = f"{self.backend} on {self.device}: {' '.join(filter(None, (self.method, self.layer)))}"
        if self.raised:
            return [f"{place}: raised {self.raised}"]
        return [
            f"{place}: {value.name} is not finite"
            if math.isnan(value.error)
            else f"{place}: {value.name} is off by {value.error:.1e}, allowed {value.allowed:.1e}"
            for value in self.values
            if value.differs
        ]


def here() -> list[str]:
    """The devices to check: the CPU and what there is besides (ROCm calls its devices cuda)."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return ["cpu", *(name for name, there in found.items() if there)]


def backends(device: str, *, compiled: bool) -> list[str]:
    """The backends to check on a device. On the CPU the reference is the measure itself."""
    left_out = {"auto", *(() if compiled else ("compiled",)), *(("reference",) if device == "cpu" else ())}
    return [name for name in BACKENDS if name not in left_out]


def compare(device: str, backend: Any) -> Iterator[Comparison]:
    """Every case that a backend has an implementation of, one after the other."""
    for case in cases():
        if case.method or backend in CONVOLVING:
            yield compare_case(case, device, backend)


def compare_case(case: Case, device: str, backend: Any) -> Comparison:
    """A backend against the reference in one case; what it raises is a finding, too."""
    place = (device, backend, case.layer, case.method)
    try:
        with full_precision(), use_backend(backend):
            found = outputs_and_gradients(case, device, torch.float32)
    except BackendUnavailableError as error:
        return Comparison(*place, refused=str(error))
    except Exception as error:  # whatever a driver or a compiler raises
        return Comparison(*place, raised=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
    exact, rounded = exact_and_rounded(case.layer, case.method)
    return Comparison(
        *place,
        values=[
            Value(name, off_by(found[name], value), max(LEAST, TIMES * off_by(rounded[name], value)))
            for name, value in exact.items()
        ],
    )


def off_by(found: Tensor, exact: Tensor) -> float:
    """The largest error relative to the largest number; nan for numbers that are not finite, or another shape."""
    if found.shape != exact.shape or not found.isfinite().all():
        return math.nan
    error, size = (found - exact).abs().max().item(), exact.abs().max().item()
    return error / size if size else error


@cache
def exact_and_rounded(layer: str, method: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A case by the reference on the CPU, in float64 and in float32."""
    [case] = [case for case in cases() if (case.layer, case.method) == (layer, method)]
    with use_backend("reference"):
        exact, rounded = (outputs_and_gradients(case, "cpu", dtype) for dtype in (torch.float64, torch.float32))
    return exact, rounded


def outputs_and_gradients(case: Case, device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """By name, in float64 on the CPU."""
    module = deepcopy(case.module).to(device, dtype)
    inputs = {name: maps.detach().to(device, dtype).requires_grad_() for name, maps in case.inputs.items()}
    pose, activation = module(Capsules(**inputs) if len(inputs) == 2 else inputs["image"])
    generator = torch.Generator().manual_seed(SEED)
    upstream = [torch.randn(out.shape, generator=generator).to(device, dtype) for out in (pose, activation)]
    sources = {**inputs, **dict(module.named_parameters())}
    gradients = torch.autograd.grad((pose, activation), list(sources.values()), upstream, materialize_grads=True)
    named = {f"gradient of {name}": value for name, value in zip(sources, gradients, strict=True)}
    return {name: v.detach().cpu().double() for name, v in {"pose": pose, "activation": activation, **named}.items()}


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 without TF32, which cuDNN's convolutions take by default and which has 11 bits."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@cache
def cases() -> tuple[Case, ...]:
    """Fields that tile the map, fields that overlap, whole maps; odd numbers of capsules; some capsules off."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        found = []
        for name in list_routings(native=True):
            method = routing_method(name)
            has_bandwidth = "bandwidth" in method.options
            options: dict[str, Any] = {"routing": name}
            # eq. 8 adds up all votes: the densities of many would make one activation 1, and all gradients 0
            many: dict[str, Any] = options | ({"activation_bandwidth": 30.0} if has_bandwidth else {})
            layers: list[tuple[str, RoutedLayer, tuple[int, int]]] = [
                ("2x2 fields", CapsuleConv2d(4, 6, 2, learn_bandwidth=has_bandwidth, **options), (6, 4)),
                ("3x3, overlapping", CapsuleConv2d(3, 5, 3, 2, 1, **options), (5, 7)),
                ("class capsules", ClassCapsules(32, 5, 4, **many), (4, 4)),
                ("class, shared", ClassCapsules(6, 3, shared=True, **many), (3, 5)),
                ("class, coordinates", ClassCapsules(6, 3, shared=True, coordinates=True, **many), (3, 5)),
            ]
            for layer, module, size in layers:
                capsules = random_capsules(module.in_capsules, *size)
                found.append(Case(layer, method.label, randomised(module), capsules))
        for kernel in (3, 5):
            block = randomised(PoseResidual(2, kernel))
            found.append(Case(f"residual, {kernel}x{kernel}", "", block, random_capsules(2, 8, 8, batch=4)))
        found.append(Case("primary head", "", randomised(PrimaryCapsules(3, 2)), {"image": torch.randn(2, 3, 6, 6)}))
        return tuple(found)


def randomised(module: nn.Module) -> nn.Module:
    """Every parameter moved away from its start, which might hide it."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return module


def random_capsules(n: int, height: int, width: int, batch: int = 2) -> dict[str, Tensor]:
    """Maps as layers pass them on, channels-last; a fifth of the capsules is off."""
    pose = torch.randn(batch, POSE_SIZE * n, height, width)
    activation = torch.rand(batch, n, height, width)
    activation *= torch.rand(activation.shape) > 0.2
    return {
        "pose": pose.contiguous(memory_format=torch.channels_last),
        "activation": activation.contiguous(memory_format=torch.channels_last),
    }
