"""The machine and the versions that a run's numbers belong to."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from torchcaps.ops import native


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """For the JSON file and the head of the report; with the GPU, where that is what runs."""
    gpu = {} if device == "cpu" else {"gpu": torch.cuda.get_device_name(device)}
    return gpu | {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "vector_path": "no native core" if native.core is None else native.core.capabilities()["vector_path"],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchcaps": version("torchcaps"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
