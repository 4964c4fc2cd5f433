"""Where the benchmark runs, and the clock that holds there."""

import time
from collections.abc import Callable

import torch

from torchcaps.errors import OptionError
from torchcaps.nn import CapsuleConv2d
from torchcaps.ops.backend import BackendUnavailableError, use_backend
from torchcaps.ops.triton.launch import LaunchError
from torchcaps.types import POSE_SIZE, Capsules

Clock = Callable[[Callable[[], object]], float]  # a step -> the seconds that it takes


def wall_clock(step: Callable[[], object]) -> float:
    """For the CPU, where a step has done its work when it returns."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def event_clock(step: Callable[[], object]) -> float:
    """For a GPU, which is still at work when a step returns: the time between two events in its queue."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()  # what was asked of it before is not this step's
    begin.record()
    step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000  # it counts milliseconds


def clock_of(device: str) -> Clock:
    """The clock for steps on a device."""
    return wall_clock if device == "cpu" else event_clock


def use_device(name: str) -> str:
    """Make a device the one that is measured, or say why it cannot be."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise OptionError(f"--device {name}: expected cpu or cuda, or cuda:1 for the second GPU")
    if device.type == "cpu":
        return "cpu"
    if not torch.cuda.is_available():
        raise OptionError(
            f"--device {name}: PyTorch {torch.__version__} finds no GPU here; "
            "expected a build of PyTorch for your GPU and a working driver, or --device cpu"
        )
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise OptionError(f"--device {name}: expected one of {', '.join(f'cuda:{n}' for n in range(count))}")
    torch.cuda.set_device(device)  # events and the allocator's figures are those of the current one
    return name


def triton_serves(device: str) -> bool:
    """Whether the Triton kernels run there."""
    capsules = Capsules(torch.zeros(1, POSE_SIZE, 2, 2, device=device), torch.ones(1, 1, 2, 2, device=device))
    try:
        with use_backend("triton"), torch.no_grad():
            CapsuleConv2d(1, 1, device=device)(capsules)
    except (BackendUnavailableError, LaunchError):
        return False
    return True
