"""``torchcaps doctor``: what is available here, and whether it computes what it should."""

import json as json_text
import math
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from torchcaps.cli.tables import Cell, fitting_table
from torchcaps.errors import OptionError
from torchcaps.nn.check import LEAST, TIMES, Comparison, backends, compare, here

MEASURE = (
    "Error: the largest one relative to the value's largest number, against the reference in float64 on the CPU. "
    f"Allowed: {TIMES:g} times what the reference loses in float32, and always {LEAST:g}. Each row shows the value "
    "nearest to that."
)


def doctor(check: bool = False, compiled: bool = False, json: bool = False) -> None:
    """Show which backends are available, which is in use, and why others are not.

    The check runs some layers in every backend on every device, and compares outputs and every gradient. It takes
    less than a minute on a CPU, and minutes the first time on a GPU, where kernels are compiled.

    Args:
        check: Also compare each backend with the reference; exits with code 1 if any differs.
        compiled: Also check torch.compile, which takes minutes: it compiles each layer.
        json: Print one JSON object and nothing else.
    """
    from torchcaps.ops.doctor import findings

    if compiled and not check:
        raise OptionError("--compiled is a part of the check: expected --check --compiled")
    console = Console(quiet=json, highlight=False, markup=False)
    here_is = findings()
    table = Table("", "", show_header=False)
    for name, finding in here_is.items():
        table.add_row(name, finding)
    console.print(table)
    found = run_checks(console, compiled=compiled) if check else []
    failures = [failure for comparison in found for failure in comparison.failures]
    if json:
        checked = {"comparisons": [as_json(comparison) for comparison in found], "failures": failures}
        print(json_text.dumps({"findings": here_is} | (checked if check else {}), indent=1))
    elif check:
        console.print(
            *([f"differs: {failure}" for failure in failures] or ["no difference beyond what float32 loses"]), sep="\n"
        )
    if failures:
        raise SystemExit(1)


def run_checks(console: Console, *, compiled: bool) -> list[Comparison]:
    """Every backend on every device that is here, each shown as soon as it is done."""
    everything = []
    for device in here():
        for backend in backends(device, compiled=compiled):
            title, found = f"{backend} on {device}", []
            with console.status(title) as status:
                for comparison in compare(device, backend):
                    found.append(comparison)
                    status.update(f"{title}: {len(found)} layers")
            everything += found
            if all(comparison.refused for comparison in found):
                console.print(f"{title}: not available: {found[0].refused}")
                continue
            table = comparison_table(console, found)
            table.title, table.title_justify = title, "left"
            console.print(table)
    console.print(MEASURE)
    return everything


def comparison_table(console: Console, found: list[Comparison]) -> Table:
    """A row for each layer and method, with the value that is nearest to its limit."""
    rows: list[list[Cell]] = []
    for comparison in found:
        row: list[Cell] = [comparison.layer, comparison.method or "-"]
        if comparison.values:
            worst = comparison.worst
            rows.append([*row, worst.name, f"{worst.error:.1e}", f"{worst.allowed:.1e}"])
        else:
            rows.append([*row, "raised an error" if comparison.raised else "not served", "-", "-"])
    numbers = ("error", "allowed")
    return fitting_table(console, ("layer", "method", "value", *numbers), rows, right=numbers, drop=("allowed",))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """For ``--json``, which has no nan."""
    values = [
        asdict(value) | {"error": None if math.isnan(value.error) else value.error, "differs": value.differs}
        for value in comparison.values
    ]
    return asdict(comparison) | {"values": values}
