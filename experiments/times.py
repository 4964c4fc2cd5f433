"""The times of Table 1, measured on this machine: the contenders take turns in one process."""

from typing import Any

from rich.console import Console

from experiments.cells import Times
from experiments.results import Places, write_result
from torchcaps.ops import native


def measure_times(job: Times, places: Places, console: Console) -> None:
    """Write the seconds of each network in each round; without the native core there is nothing to measure."""
    from torchcaps.bench.networks import time_networks
    from torchcaps.runs.machine import describe_machine

    if native.core is None:
        console.print(f"times are not measured: {native.MISSING}", highlight=False, markup=False, soft_wrap=True)
        return
    with console.status("times") as status:
        _, result = time_networks(job.plan, status.update)
    values: dict[str, Any] = {"name": job.name, "machine": describe_machine(), **result}
    write_result(places.result(job), values)
