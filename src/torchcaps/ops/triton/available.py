"""Where the Triton kernels can run. Looking does not import triton."""

from contextlib import suppress
from importlib import metadata, util

import torch
from torch import Tensor

from torchcaps.ops.native import is_transformed
from torchcaps.ops.triton.launch import INTERPRET, MOST_ELEMENTS, is_interpreted
from torchcaps.ops.triton.table import MOST_OUTPUTS

OLDEST = (3, 7)  # the oldest that has compiled the kernels
DISTRIBUTIONS = ("triton", "triton-rocm", "pytorch-triton-rocm", "pytorch-triton", "triton-windows")  # who brings it
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LEAST_CAPABILITY = (7, 5)

_failures: dict[str, str] = {}  # by device


def _absent() -> str | None:
    """Why triton cannot be imported, or None where it can."""
    found = util.find_spec("triton")
    if found is None or found.origin is None:  # None: a folder of that name, and no package
        return "triton is not installed: pip install 'torchcaps[triton]'"
    return None


def _missing() -> str | None:
    """Why there is no triton for our kernels, or None where there is one."""
    if absent := _absent():
        return absent
    version = _version()
    if version and tuple(int(number) for number in version.split("+")[0].split(".")[:2]) < OLDEST:
        return f"triton {version} is too old, expected {'.'.join(map(str, OLDEST))} or newer: update torch"
    return None


def _version() -> str | None:
    """Of triton, where one of its distributions says so."""
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _reach(maps: Tensor) -> int:
    """The largest offset inside of an image."""
    return sum((size - 1) * stride for size, stride in zip(maps.shape[1:], maps.stride()[1:], strict=True))


# Looked up once, and not while torch.compile traces a call.
ABSENT, MISSING = _absent(), _missing()


def why_not_on(device: torch.device) -> str | None:
    """Why the kernels cannot run on a device, or None where they can."""
    if MISSING:
        return MISSING
    if device.type == "cpu":
        if is_interpreted():
            return None
        return f"the Triton kernels run on GPUs; on the CPU only with {INTERPRET}=1, set before Python starts (slow)"
    if device.type != "cuda":  # ROCm's is called so, too
        return f"the Triton kernels run on CUDA and ROCm; device of capsules: {device}"
    if torch.version.hip is None and not torch.compiler.is_compiling():
        found = torch.cuda.get_device_capability(device)
        if found < LEAST_CAPABILITY:
            expected = ".".join(map(str, LEAST_CAPABILITY))
            return f"the Triton kernels need compute capability {expected}; {device} has {'.'.join(map(str, found))}"
    return _failures.get(str(device))


def why_not(pose: Tensor, weight: Tensor, vote_offset: Tensor | None) -> str | None:
    """Why the kernels cannot serve a call with such tensors, or None where they can."""
    if reason := why_not_on(pose.device):
        return reason
    for name, tensor in (("capsules", pose), ("weight", weight)):
        if tensor.dtype not in DTYPES:
            return f"the Triton kernels take float32, bfloat16 and float16; type of {name}: {tensor.dtype}"
    if weight.device != pose.device:
        return f"the capsules are on {pose.device}, the weights on {weight.device}: move one with .to(device)"
    if weight.shape[1] > MOST_OUTPUTS:
        return f"the Triton kernels route to at most {MOST_OUTPUTS} capsules, not to {weight.shape[1]}"
    if not torch.compiler.is_compiling() and pose.numel() and _reach(pose) >= MOST_ELEMENTS:
        return f"the Triton kernels take images whose elements lie within {MOST_ELEMENTS} of each other in memory"
    if vote_offset is not None and vote_offset.requires_grad:
        return "the Triton kernels have no gradient by vote offsets"
    if is_transformed():
        return "the Triton kernels have no rules for torch.func transforms and forward-mode derivatives"
    return None


def remember_failure(device: torch.device, reason: str) -> None:
    """From now on the kernels cannot run there."""
    _failures[str(device)] = reason
