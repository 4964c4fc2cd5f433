"""What a wrong call is told."""

import math

import torch
from torch import Tensor


def check_votes(votes: Tensor, activation: Tensor | None) -> None:
    """Raise unless votes are ``[..., I, J, D]`` and activations ``[..., I]``, floating and not negative."""
    if votes.dim() < 3 or 0 in votes.shape[-3:]:
        raise ValueError(f"votes have shape {list(votes.shape)}, expected [..., I, J, D] with I, J, D at least 1")
    if not votes.is_floating_point():
        raise TypeError(f"votes are {votes.dtype}, expected a floating-point type: call .float() on them")
    if activation is None:
        return
    if activation.shape != votes.shape[:-2]:
        raise ValueError(
            f"activation has shape {list(activation.shape)}, expected {list(votes.shape[:-2])}: "
            f"one number for each input capsule of votes {list(votes.shape)}"
        )
    if activation.dtype != votes.dtype or activation.device != votes.device:
        raise TypeError(
            f"activation is {activation.dtype} on {activation.device}, votes are {votes.dtype} on {votes.device}: "
            "expected the same for both"
        )
    check_not_negative(activation)


def check_not_negative(activation: Tensor) -> None:
    """Raise where an activation is below 0, if that can be seen: see :func:`has_values`."""
    if activation.numel() and has_values(activation) and (least := activation.detach().amin().item()) < 0:
        raise ValueError(
            f"activation has values down to {least:.3g}, expected none below 0: "
            "make them with a sigmoid, a softmax or a ReLU"
        )


def has_values(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at, and at no cost: elsewhere than on the CPU that would stop the
    device's queue; compiled, traced or transformed, there may be none.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() or tensor.device.type != "cpu":
        return False
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and torch._C._len_torch_dispatch_stack() == 0
    return plain and not torch._C._are_functorch_transforms_active()


def check_shapes(votes: Tensor, **given: Tensor) -> None:
    """Raise unless what goes with votes ``[..., I, J, D]`` has the shape that its name says."""
    lead, (outputs, size) = votes.shape[:-3], votes.shape[-2:]
    shapes = {"coupling": votes.shape[:-1], "pose": (*lead, outputs, size), "activation": (*lead, outputs)}
    shapes |= {"beta": (outputs, size), "beta0": (outputs,), "beta_u": (outputs,), "beta_a": (outputs,)}
    for name, value in given.items():
        if value.shape != shapes[name]:
            raise ValueError(
                f"{name} has shape {list(value.shape)}, expected {list(shapes[name])} for votes {list(votes.shape)}"
            )


def check_iterations(iterations: int) -> None:
    """Raise unless this is a whole number of at least 1."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations={iterations!r}: expected a whole number of at least 1")


def check_number(name: str, value: float, *, positive: bool = True) -> None:
    """Raise unless an option is a finite number, and above zero where it has to be."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
    if not number or (positive and value <= 0):
        raise ValueError(f"{name}={value!r}: expected a {'positive, ' if positive else ''}finite number")


def check_bandwidth(bandwidth: float | Tensor) -> None:
    """Raise unless this is a positive, finite number, or a floating-point tensor ``[]`` that holds one."""
    if not isinstance(bandwidth, Tensor):
        return check_number("bandwidth", bandwidth)
    if bandwidth.shape or not bandwidth.is_floating_point():
        raise ValueError(
            f"bandwidth is a {bandwidth.dtype} tensor of shape {list(bandwidth.shape)}: "
            "expected a number, or a floating-point tensor []"
        )
    if has_values(bandwidth):
        check_number("bandwidth", bandwidth.detach().item())
    return None
