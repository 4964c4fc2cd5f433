"""The command: run the parts, show their tables, write JSON and plots."""

import json
from pathlib import Path
from typing import Any

from torchcaps.bench.plan import PARTS, full_plan, on_gpu, quick_plan
from torchcaps.errors import OptionError, UserError
from torchcaps.runs.folder import write_json
from torchcaps.train.run import require_lightning

FILE = "bench.json"


def bench(
    quick: bool = False,
    output: Path = Path("bench-results"),
    only: str = ",".join(PARTS),
    markdown: bool = False,
    device: str = "cpu",
) -> None:
    """Measure routing on this machine: alone, in networks, as sizes grow, and against the machine's limits.

    Also measured are the training loop, batch normalisation and the networks of our recipes.

    Contenders take turns in one process and are compared with each other, with the spread over the rounds. Writes
    bench.json (all individual timings) and plots. A full run takes about a quarter of an hour on two cores, and some
    minutes more the first time, when torch.compile's cache is empty.

    Args:
        quick: Small batches, few rounds, no torch.compile: about a minute.
        output: The folder for bench.json and the plots.
        only: The parts to run, separated by commas.
        markdown: Measure nothing; print bench.json from the output folder as markdown tables.
        device: cpu, or cuda for a GPU, with its own clock and its allocator's memory.
    """
    if markdown:
        print(write_markdown(output / FILE))
        return
    parts = [part.strip() for part in only.split(",")]
    if unknown := [part for part in parts if part not in PARTS]:
        raise OptionError(f"--only {only}: no part {', '.join(unknown)}; expected some of {', '.join(PARTS)}")
    try:
        import matplotlib  # noqa: F401 - better to know now than after a quarter of an hour
    except ImportError:
        raise UserError("the plots need matplotlib: pip install 'torchcaps[bench]'") from None
    if "loop" in parts:
        require_lightning()
    from torchcaps.bench.devices import use_device
    from torchcaps.ops import native

    device = use_device(device)
    if device == "cpu" and native.core is None:
        raise UserError(f"there is nothing to measure: {native.MISSING}")
    check_kept(output / FILE, parts)
    run(quick, output, parts, device)


def check_kept(path: Path, parts: list[str]) -> None:
    """Raise where a run of some parts would lose others that were measured before."""
    lost = [part for part in (read_results(path)["parts"] if path.is_file() else ()) if part not in parts]
    if lost:
        raise OptionError(
            f"{path} also has {', '.join(lost)}, which this run would drop: choose another folder with --output, or "
            "remove the file"
        )


def run(quick: bool, output: Path, parts: list[str], device: str) -> None:
    """Measure the parts; each is shown, written and plotted as soon as it is there."""
    from rich.console import Console

    from torchcaps.bench import plots
    from torchcaps.bench.devices import triton_serves
    from torchcaps.bench.loop import measure_loop
    from torchcaps.bench.measure import under
    from torchcaps.bench.networks import measure_networks, measure_norm, measure_recipes
    from torchcaps.bench.report import machine_line, tables
    from torchcaps.bench.routing import measure_growth, measure_limits, measure_routing
    from torchcaps.cli.tables import show
    from torchcaps.runs.machine import describe_machine

    measures = {
        "routing": measure_routing,
        "networks": measure_networks,
        "growth": measure_growth,
        "limits": measure_limits,
        "loop": measure_loop,
        "norm": measure_norm,
        "recipes": measure_recipes,
    }
    plan = quick_plan() if quick else full_plan()
    if device != "cpu":
        plan = on_gpu(plan, device, triton=triton_serves(device))
    results: dict[str, Any] = {"machine": describe_machine(device), "quick": quick, "parts": {}}
    console = Console()
    console.print(machine_line(results["machine"]))
    output.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if part not in parts:
            continue
        with console.status(part) as status:
            results["parts"][part] = measures[part](plan, under(part, status.update))
        for table in tables(part, results["parts"][part]):
            show(console, table)
        write_json(output / FILE, results)
        if part in plots.PLOTS:
            plots.draw(part, results["parts"][part], output / f"{part}.png")
    drawn = [f"{part}.png" for part in parts if part in plots.PLOTS]
    console.print(f"written to {output}: {', '.join([FILE, *drawn])}")


def write_markdown(path: Path) -> str:
    """The tables of a run as markdown, from what its bench.json holds."""
    from torchcaps.bench.report import as_markdown

    if not path.is_file():
        raise OptionError(f"there is no {path}: run torchcaps bench first, or name its folder with --output")
    try:
        return as_markdown(read_results(path))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise not_ours(path, error) from error


def read_results(path: Path) -> dict[str, Any]:
    """What a run has written."""
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(results, dict) or not isinstance(results.get("parts"), dict):
            raise ValueError("it has no parts")
    except (OSError, ValueError) as error:
        raise not_ours(path, error) from error
    return results


def not_ours(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is not what torchcaps bench writes ({error}): remove it, and measure again")
