"""What this installation can do."""

import os
import platform

import torch

from torchcaps._environment import SET_HERE, WAITING
from torchcaps.ops import compiled, native
from torchcaps.ops.backend import VARIABLE, requested_backend
from torchcaps.ops.triton import available
from torchcaps.ops.triton.launch import is_interpreted


def findings() -> dict[str, str]:
    """Versions, backends and threads, each in a sentence."""
    return {
        "versions": f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}",
        "backend": _backend(),
        "native": native.MISSING or _native(),
        "triton": _triton(),
        "compiled": _compiled(),
        "reference": "available: any device and floating type, every option",
        "threads": f"{torch.get_num_threads()} (torch.set_num_threads), {os.cpu_count()} processors; {_waiting()}",
    }


def _backend() -> str:
    try:
        asked = requested_backend()
        takes = f", which takes {_taken_by_auto()}" if asked == "auto" else ""
        return f"{asked}{takes} ({VARIABLE} is {os.environ.get(VARIABLE, 'not set')})"
    except ValueError as error:
        return str(error)


def _taken_by_auto() -> str:
    """By device, the first backend that can serve there; a layer that it does not serve goes to the next."""
    on_cpu = "reference" if native.MISSING else "native"
    if not torch.cuda.is_available():
        return f"{on_cpu} on the CPU"
    gpu = torch.device("cuda", torch.cuda.current_device())
    reasons = {"triton": available.why_not_on(gpu), "compiled": compiled.why_not(gpu)}
    on_gpu = next((name for name, reason in reasons.items() if reason is None), "reference")
    passed = [f"{name} cannot: {reason}" for name, reason in reasons.items() if reason]
    why = f" ({'; '.join(passed)})" if passed else ""
    return f"{on_cpu} on the CPU, {on_gpu} on the GPU{why}"


def _waiting() -> str:
    """PyTorch's own threads spin for some milliseconds after each operation, on the cores that routing wants."""
    if spins := os.environ.get("GOMP_SPINCOUNT"):
        return f"GOMP_SPINCOUNT is {spins}"
    if policy := os.environ.get(WAITING):
        return f"{WAITING} is {policy}{' (set by torchcaps)' if SET_HERE else ''}"
    return (
        f"{WAITING} is not set: PASSIVE keeps PyTorch's waiting threads off routing's cores; "
        "set it before Python starts, or import torchcaps before torch"
    )


def _native() -> str:
    found = native.core.capabilities()
    usable, built = found["usable_vector_paths"], found["vector_paths"]
    return f"available: vector path {found['vector_path']} in use; built {', '.join(built)}; usable {', '.join(usable)}"


def _triton() -> str:
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if reason := available.why_not_on(device):
        return f"not available: {reason}"
    where = "in its interpreter, on the CPU" if is_interpreted() else torch.cuda.get_device_name()
    return f"available: fused kernels; {where}"


def _compiled() -> str:
    reason = compiled.why_not(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    gpu = f"{torch.cuda.get_device_name()} is there (untested)" if torch.cuda.is_available() else "no GPU here"
    return f"not available: {reason}; {gpu}" if reason else f"available: torch.compile of the reference; {gpu}"
