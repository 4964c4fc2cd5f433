"""Where a run computes, and with how many bits."""

from typing import Literal, get_args

import torch

from torchcaps.errors import OptionError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["32", "bf16", "16"]
DEFAULT_PRECISION: Precision = "32"
OF_LIGHTNING: dict[Precision, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}


def accelerator(device: Device = "auto") -> str:
    """Where a run trains: what was asked for, if this machine has it; by default a GPU of CUDA's, or else the CPU."""
    if device not in get_args(Device):
        raise OptionError(f"device is {device!r}, expected one of {', '.join(get_args(Device))}")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError(
            "--device cuda: this machine has no CUDA GPU that torch can use: leave it out, or --device cpu"
        )
    if device == "mps" and not torch.backends.mps.is_available():
        raise OptionError(
            "--device mps: this machine has no Apple GPU that torch can use: leave it out, or --device cpu"
        )
    return device


def check_devices(device: str, count: int) -> None:
    """Raise unless the machine has so many of an accelerator."""
    there_are = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device, count)
    if count > there_are:
        raise OptionError(f"--devices {count}: of {device} this machine has {there_are}, expected at most that many")


def check_precision(precision: Precision, device: str) -> None:
    """Raise where an accelerator does not train with so many bits."""
    if precision not in get_args(Precision):
        raise OptionError(f"precision is {precision!r}, expected one of {', '.join(map(repr, get_args(Precision)))}")
    if precision == "16" and device == "cpu":
        raise OptionError(
            "--precision 16: mixed precision with float16 is for GPUs, and this run is on the CPU: "
            "expected 32, or bf16, which the CPU has too"
        )
