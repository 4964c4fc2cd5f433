"""The times of Table 1, measured on this machine: the contenders take turns in one process."""

from typing import Any

from rich.console import Console

from torchcaps.ops import native
from torchcaps.reproduce.cells import Times
from torchcaps.reproduce.results import Places, write_result


def measure_times(job: Times, places: Places, console: Console) -> None:
    """Write the seconds of each network in each round; without the native core there is nothing to measure."""
    from torchcaps.bench.machine import describe_machine
    from torchcaps.bench.networks import time_networks

    if native.core is None:
        console.print(f"times are not measured: {native.MISSING}", highlight=False, markup=False, soft_wrap=True)
        return
    with console.status("times") as status:
        _, result = time_networks(job.plan, status.update)
    values: dict[str, Any] = {"name": job.name, "machine": describe_machine(), **result}
    write_result(places.result(job), values)
