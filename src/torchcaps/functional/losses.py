"""Losses on the activations of the class capsules, and on the image that their poses give back."""

import math

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchcaps.functional.checks import has_values


def spread_loss(activation: Tensor, label: Tensor, margin: float, *, sample_weight: Tensor | None = None) -> Tensor:
    """Hinton et al. 2018: sum over the wrong classes of max(0, margin - (a_target - a_i))^2, mean over the batch.

    ``sample_weight`` are factors on the loss of each sample. Shapes: activation ``[B, classes]``, label ``[B]``,
    sample_weight ``[B]`` -> ``[]``.

    >>> spread_loss(torch.tensor([[0.9, 0.1, 0.0]]), torch.tensor([0]), margin=0.9)
    tensor(0.0100)
    """
    check_activation(activation)
    check_labels(label, activation)
    target = activation.gather(1, label.unsqueeze(1))  # [B, 1]
    violation = (margin - (target - activation)).clamp(min=0).square()  # [B, classes]
    # zero, and free of gradient, at the target itself
    return weighted_mean(violation.scatter(1, label.unsqueeze(1), 0.0).sum(1), sample_weight)


def margin_loss(
    activation: Tensor,
    label: Tensor,
    *,
    positive: float = 0.9,
    negative: float = 0.1,
    down_weight: float = 0.5,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Sabour et al. 2017: the target should be above ``positive``, every other class below ``negative``.

    ``sample_weight`` are factors on the loss of each sample. Shapes: activation ``[B, classes]``, label ``[B]``,
    sample_weight ``[B]`` -> ``[]``.
    """
    check_activation(activation)
    check_labels(label, activation)
    target = one_hot(label, activation.shape[1]).to(activation)  # [B, classes]
    present = (positive - activation).clamp(min=0).square()
    absent = (activation - negative).clamp(min=0).square()
    return weighted_mean((target * present + down_weight * (1 - target) * absent).sum(1), sample_weight)


def activation_cross_entropy(activation: Tensor, label: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
    """-log(a_target / sum_j a_j), mean over the batch; finite, with its gradient, where activations underflow to 0.

    ``sample_weight`` are factors on the loss of each sample. Shapes: activation ``[B, classes]``, none below 0, label
    ``[B]``, sample_weight ``[B]`` -> ``[]``.

    >>> activation_cross_entropy(torch.tensor([[0.6, 0.1, 0.1]]), torch.tensor([0]))
    tensor(0.2877)
    """
    check_activation(activation)
    check_labels(label, activation)
    # Added rather than clamped to, which would leave targets at 0 without a gradient. So large that a gradient's
    # square is finite too, which optimisers keep; so small that activations above 1e-11 (float32) are as they were.
    activation = activation.to(
        torch.promote_types(activation.dtype, torch.float32)
    )  # half precision has no such number
    shifted = activation + math.sqrt(torch.finfo(activation.dtype).tiny)  # [B, classes]
    return weighted_mean(shifted.sum(1).log() - shifted.gather(1, label.unsqueeze(1)).squeeze(1).log(), sample_weight)


def reconstruction_loss(image: Tensor, target: Tensor, *, weight: float = 0.0005) -> Tensor:
    """``weight`` times the sum of squared differences over pixels and channels, mean over the batch.

    Shapes: image and target ``[B, C, H, W]`` -> ``[]``.
    """
    if image.dim() != 4 or image.shape != target.shape:
        raise ValueError(
            f"image has shape {list(image.shape)}, target {list(target.shape)}: expected [B, C, H, W] for both"
        )
    return weight * (image - target).square().sum((1, 2, 3)).mean()


def spread_margin(step: int, *, steps_per_epoch: int, epochs: float, start: float = 0.2, end: float = 0.9) -> float:
    """The spread loss's margin at a step: linear from ``start`` to ``end`` over min(5, 0.3 epochs) epochs.

    >>> [round(spread_margin(step, steps_per_epoch=10, epochs=50), 3) for step in (0, 25, 50, 400)]
    [0.2, 0.55, 0.9, 0.9]
    """
    rise = min(5.0, 0.3 * epochs) * steps_per_epoch  # steps
    return end if step >= rise else start + (end - start) * step / rise


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """The mean over the samples of their losses ``[B]``, each times its weight ``[B]`` where there are weights.

    Not divided by the sum of the batch's weights, which would make a sample count more beside light ones.
    """
    if weight is None:
        return losses.mean()
    if weight.shape != losses.shape:
        raise ValueError(f"sample_weight has shape {list(weight.shape)}, expected {list(losses.shape)}")
    return (losses * weight).mean()


def check_labels(label: Tensor, classes: Tensor) -> None:
    """Raise unless label is ``[B]`` of class indices for ``classes [B, number of classes, ...]``."""
    batch, count = classes.shape[:2]
    if label.shape != (batch,):
        raise ValueError(f"label has shape {list(label.shape)}, expected {[batch]}: one class for each sample")
    if label.dtype != torch.int64:
        raise TypeError(f"label is {label.dtype}, expected torch.int64 class indices: call .long() on them")
    if label.device != classes.device:
        raise ValueError(f"label is on {label.device}, expected {classes.device}: move it with .to(device)")
    if batch and has_values(label):
        low, high = label.aminmax()
        if low < 0 or high >= count:
            raise ValueError(f"label holds classes from {int(low)} to {int(high)}, expected 0 to {count - 1}")


def check_activation(activation: Tensor) -> None:
    """Raise unless activation is ``[B, classes]``."""
    if activation.dim() != 2:
        raise ValueError(f"activation has shape {list(activation.shape)}, expected [B, classes]")
