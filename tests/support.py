"""What tests share: random capsules, random parameters, layers by the oracle, a number of threads."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

import oracle
from torchcaps import Capsules
from torchcaps.functional import list_routings, routing_method
from torchcaps.models import HybridNetwork, Stage
from torchcaps.nn import CapsuleConv2d

Array = np.ndarray


def random_capsules(
    batch: int, n: int, height: int, width: int, *, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Capsules:
    """Standard normal poses, activations in (0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    pose = torch.randn(batch, 16 * n, height, width, dtype=torch.float64, generator=generator)
    activation = torch.rand(batch, n, height, width, dtype=torch.float64, generator=generator)
    return Capsules(pose.to(dtype), activation.to(dtype))


def randomised(module: nn.Module, *, std: float = 0.5, seed: int = 1) -> Any:
    """The module in float64 with every parameter random, so that no neutral start hides one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.copy_(std * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return module


def method_options(*names: str, **choices: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each of these methods (or all of the registry) with every combination of those choices that it has."""
    found = []
    for name in names or list_routings():
        own = {option: values for option, values in choices.items() if option in routing_method(name).options}
        found += [(name, dict(zip(own, values, strict=True))) for values in itertools.product(*own.values())]
    return found


def oracle_route(
    routing: str, votes: Array, activation: Array, parameters: dict[str, Array], **options: Any
) -> tuple[Array, Array, Array]:
    """One receptive field by the oracle: pose [J, 16], activation [J], coupling [I, J]."""
    if routing == "em":
        return oracle.em(votes, activation, **parameters, **options)
    if routing in ("agreement", "frms_variant"):
        return getattr(oracle, routing)(votes, **options)
    own = {name: options.pop(f"activation_{name}", None) for name in ("kernel", "bandwidth")}
    own["kernel"] = "epanechnikov-unclipped" if own["kernel"] == "epanechnikov" else own["kernel"]
    pose, coupling = getattr(oracle, routing)(votes, activation, **options)
    of_eq_8 = {k: v for k, v in options.items() if k not in ("iterations", "step")}
    of_eq_8 |= {k: v for k, v in own.items() if v is not None}
    a = oracle.capsule_activation(votes, activation, coupling, pose, **parameters, **of_eq_8)
    return pose, a, coupling


def oracle_conv(
    layer: CapsuleConv2d, capsules: Capsules, routing: str, window: tuple[Any, Any, Any], **options: Any
) -> tuple[Array, Array, Array]:
    """A layer by the oracle: pose [B, 16 out, Ho, Wo], activation [B, out, Ho, Wo], coupling [B, Ho, Wo, I, J]."""
    parameters = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    weight = parameters.pop("weight")
    if "log_bandwidth" in parameters:
        options = {"activation_bandwidth": 1.0, **options, "bandwidth": np.exp(parameters.pop("log_bandwidth"))}
    poses, activations, couplings = [], [], []
    for pose, activation in zip(capsules.pose.numpy(), capsules.activation.numpy(), strict=True):
        votes, fields = oracle.capsule_conv(pose, activation, weight, *window)
        routed = [
            [oracle_route(routing, v, a, parameters, **options) for v, a in zip(*row, strict=True)]
            for row in zip(votes, fields, strict=True)
        ]
        poses.append(np.array([[cell[0].reshape(-1) for cell in row] for row in routed]))
        activations.append(np.array([[cell[1] for cell in row] for row in routed]))
        couplings.append(np.array([[cell[2] for cell in row] for row in routed]))
    return np.moveaxis(np.array(poses), 3, 1), np.moveaxis(np.array(activations), 3, 1), np.array(couplings)


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Same shapes, and equal to ``tolerance``, for tensors, arrays and tuples of them."""
    assert len(actual) == len(expected)
    if isinstance(actual, tuple):
        for a, e in zip(actual, expected, strict=True):
            assert_near(a, e, tolerance)
    else:
        expected = torch.as_tensor(expected)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def tiny_hybrid(routing: str = "frem", **options: Any) -> HybridNetwork:
    """A narrow network for 8x8 images: two capsule layers and the class capsules."""
    stages = (Stage(capsules=3, residual=3), Stage(capsules=2))
    settings = {"num_classes": 3, "image_size": 8, "first_channels": 32, "conv_init": "torch", **options}
    return HybridNetwork(stages, routing=routing, **settings)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch's and the core's, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
