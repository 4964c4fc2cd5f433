"""Batch norm over the batch of all processes that train together: on CPUs too, which SyncBatchNorm refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn


class SharedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` whose statistics in training are those of all processes' images, with their gradients."""

    def forward(self, input: Tensor) -> Tensor:
        """``[B, C, H, W]`` -> ``[B, C, H, W]``."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        channels = (1, -1, 1, 1)
        values = input.to(torch.promote_types(input.dtype, torch.float32))  # half precision could not count the batch
        count = values.new_tensor([values.numel() // values.shape[1]])
        total = over_processes(torch.cat([values.sum((0, 2, 3)), count]))  # [C + 1]
        mean, count = total[:-1] / total[-1], total[-1].detach()  # [C], []
        # A second reduction: the difference of the mean square and the squared mean would cancel.
        centred = values - mean.view(channels)
        variance = over_processes(centred.square().sum((0, 2, 3))) / count  # [C]
        self._track(mean.detach(), variance.detach() * (count / (count - 1)))
        normalised = centred * (variance + self.eps).rsqrt().view(channels)
        if self.affine:
            normalised = normalised * self.weight.view(channels) + self.bias.view(channels)
        return normalised.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards the batch's; without a momentum they are the mean over all batches."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


class _SumOverProcesses(torch.autograd.Function):
    """What every process adds to the sum reaches every process's loss: the gradient is summed as well."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, gradient)


def over_processes(values: Tensor) -> Tensor:
    """The sum over all processes, differentiably."""
    total: Tensor = _SumOverProcesses.apply(values)  # type: ignore[no-untyped-call]
    return total


@contextmanager
def shared_batch_norm(network: nn.Module) -> Iterator[None]:
    """Inside, each plain `nn.BatchNorm2d` of a network is a `SharedBatchNorm2d`: the same object, of another class."""
    with _of_class(network, nn.BatchNorm2d, SharedBatchNorm2d):
        yield


@contextmanager
def own_batch_norm(network: nn.Module) -> Iterator[None]:
    """The way back: inside, no norm waits for another process."""
    with _of_class(network, SharedBatchNorm2d, nn.BatchNorm2d):
        yield


@contextmanager
def _of_class(network: nn.Module, one: type[nn.Module], other: type[nn.Module]) -> Iterator[None]:
    modules = [module for module in network.modules() if type(module) is one]
    try:
        for module in modules:
            module.__class__ = other
        yield
    finally:
        for module in modules:
            module.__class__ = one
