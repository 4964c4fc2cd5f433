"""Training that diverged (NaN or infinity) is stopped, with where it began, before it reaches a checkpoint."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import UserError
from torchcaps.nn.routed import RoutedLayer
from torchcaps.train.batch_norm import own_batch_norm


class NotFiniteError(UserError):
    """Training diverged (NaN or infinity)."""


ADVICE = "training diverged (NaN or infinity) and was stopped: start again with a lower rate"


class Place(NamedTuple):
    """Where a run is, counted from 1."""

    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch})"


def not_finite(losses: dict[str, float], network: nn.Module, image: Tensor) -> tuple[str, str] | None:
    """Which loss is not finite, and what was so first."""
    for name, value in losses.items():
        if not math.isfinite(value):
            return f"the {name.replace('_', ' ')} is {value}", _first_culprit(network, image)
    return None


def check_weights(network: nn.Module, step: int) -> None:
    """Raise where a weight is not finite."""
    name = _bad_weight(network)
    if name:
        raise NotFiniteError(f"the weights {name} are not finite after step {step}; {ADVICE}")


def _bad_weight(network: nn.Module) -> str:
    return next((name for name, value in network.named_parameters() if not value.isfinite().all()), "")


def _all_finite(values: Any) -> bool:
    """Whether a tensor is finite, or all of a tuple, whatever is in it."""
    if isinstance(values, tuple):
        return all(_all_finite(value) for value in values)
    return not isinstance(values, Tensor) or bool(values.isfinite().all())


@torch.no_grad()
def _first_culprit(network: nn.Module, image: Tensor) -> str:
    """What went wrong first: the input, a weight, or a layer's output when the batch is run again."""
    if not image.isfinite().all():
        return "the images themselves are not finite"
    if weight := _bad_weight(network):
        return f"the weights {weight} are not finite"
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if _all_finite(inputs) and not _all_finite(output):
                found.append(f"layer {name} ({type(module).__name__}) is the first whose output is not finite")

        return hook

    layers = [
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, RoutedLayer) or not list(module.children())
    ]
    handles = [module.register_forward_hook(watch(name)) for name, module in layers]
    try:
        with own_batch_norm(network):  # other processes may be fine, and would not answer
            network(image)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "every layer's output is finite, so it came from the loss or the decoder"
