"""The results as tables: the same ones on screen and as markdown."""

from collections.abc import Callable
from typing import Any

from torchcaps.bench import networks, routing
from torchcaps.bench import networks as norm
from torchcaps.bench.measure import Spread, key, ratio, spread, total
from torchcaps.bench.plan import CNN, HYBRID, METHODS
from torchcaps.bench.routing import ALL
from torchcaps.functional.registry import routing_method
from torchcaps.runs.text import Table, count

Result = dict[str, Any]
FEW_ROUNDS = 4  # fewer are said beside the ratio
LABELS = {name: routing_method(name).label for name in METHODS}


def time_text(values: Spread) -> str:
    """Median, and the minimum in brackets, in milliseconds."""
    return f"{short(1000 * values.median)} ({short(1000 * values.least)})" if values.count else "-"


def ratio_text(values: Spread) -> str:
    """Median of the ratios within a round, and their quartiles in brackets."""
    if not values.count:
        return "-"
    if values.count == 1:
        return short(values.median)
    rounds = f", {values.count} rounds" if values.count < FEW_ROUNDS else ""
    return f"{short(values.median)} ({short(values.lower)} to {short(values.upper)}{rounds})"


def memory_text(size: float | None) -> str:
    return "did not fit" if size is None else f"{size / 2**20:,.0f}"


def short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def layer_label(layer: Result) -> str:
    fields = "1 field" if layer["fields"] == 1 else f"{layer['fields']} fields"
    return f"{layer['inputs']} to {layer['outputs']}, {fields}"


def layer_times(result: Result, backend: str, method: str, layer: str, mode: str) -> list[float | None]:
    """Seconds in each round; for all layers the sum of theirs."""
    names = [entry["name"] for entry in result["layers"]] if layer == ALL else [layer]
    return total([result["seconds"][key(backend, method, name, mode)] for name in names])


def routing_tables(result: Result) -> list[Table]:
    backends = list(result["backends"])
    layers = {layer["name"]: layer_label(layer) for layer in result["layers"]} | {ALL: "all layers"}
    first, *others = backends
    tables = []
    for mode in routing.MODES:
        rows = []
        for name, label in layers.items():
            for method in METHODS:
                times = {backend: layer_times(result, backend, method, name, mode) for backend in backends}
                row = [label, LABELS[method]] + [time_text(spread(times[backend])) for backend in backends]
                rows.append(row + [ratio_text(ratio(times[other], times[first])) for other in others])
        heads = [f"{backend}, ms" for backend in backends] + [f"{other} / {first}" for other in others]
        note = "Times: median (minimum). Ratios within a round: median (quartiles). A layer is given by the input and "
        note += "output capsules of a receptive field, and the fields of an image."
        tables.append(
            Table(
                f"Routing alone, {mode.replace('+', ' and ')}, batch {result['batch']}",
                ["layer", "method", *heads],
                rows,
                note,
            )
        )
    peaks = [
        [label, LABELS[method]] + [memory_text(result["peak_bytes"][key(b, method, name)]) for b in backends]
        for name, label in layers.items()
        for method in METHODS
    ]
    heads = [f"{backend}, MB" for backend in backends]
    tables.append(Table("Routing alone, peak memory of forward and backward", ["layer", "method", *heads], peaks))
    return [*tables, against_em(result)]


def against_em(result: Result) -> Table:
    rows = []
    for backend in result["backends"]:
        for method in ("frem", "frms"):
            row = [backend, LABELS[method]]
            for mode in routing.MODES:
                mine, em = (layer_times(result, backend, m, ALL, mode) for m in (method, "em"))
                row.append(ratio_text(ratio(mine, em)))
            rows.append(row)
    paper = networks.PAPER
    for method in ("frem", "frms"):
        ratios = [f"{paper[method][mode] / paper['em'][mode]:.2f}" for mode in networks.MODES]
        rows.append(["paper, whole network", LABELS[method], *ratios])
    return Table(
        "Time of all layers relative to EM routing", ["backend", "method", "forward", "forward and backward"], rows
    )


def network_tables(result: Result) -> list[Table]:
    seconds, peaks = result["seconds"], result["peak_bytes"]
    paper = result["paper_seconds"]

    def row(labels: list[str], method: str, *name: str) -> list[str]:
        cells = labels
        for mode in networks.MODES:
            mine, cnn = seconds[key(*name, mode)], seconds[key("cnn", mode)]
            of_paper = paper[method][mode] / paper["cnn"][mode]
            cells += [time_text(spread(mine)), ratio_text(ratio(mine, cnn)), f"{of_paper:.1f}"]
        return cells + [memory_text(peaks[key(*name, mode)]) for mode in networks.MODES]

    rows = [row(["-", CNN], "cnn", "cnn")]
    rows += [row([backend, LABELS[m]], m, backend, m) for backend in result["backends"] for m in METHODS]
    if key(networks.PLAIN, "frem", "training") in seconds:
        rows.append(row([networks.PLAIN, LABELS["frem"]], "frem", networks.PLAIN, "frem"))
    columns = ["backend", "network"]
    for mode in networks.MODES:
        columns += [f"{mode}, ms", f"relative to {CNN}", "paper"]
    layouts = ", ".join(f"{name.replace('/', ' ')} {layout}" for name, layout in result["layouts"].items())
    first = result["backends"][0]
    note = f"{HYBRID} against {CNN}. Each network (the hybrid with {first} FREM) was tried in both memory layouts, "
    note += f"and runs in the faster: {layouts}. "
    note += "Training: forward, spread loss, backward, Adam. Paper: its Table 1, relative to its CNN."
    title = f"Networks, batch {result['batch']}"
    columns += [f"peak of {mode}, MB" for mode in networks.MODES]
    return [Table(title, columns, rows, note), headline(result)]


def headline(result: Result) -> Table:
    """The ratios that the first backend is judged by."""
    seconds, peaks = result["seconds"], result["peak_bytes"]
    first, *others = result["backends"]
    paper = result["paper_seconds"]
    rows = []
    for mode in networks.MODES:
        against = f"{paper['frem'][mode] / paper['cnn'][mode]:.1f}"
        for backend, label in ((first, ""), (networks.PLAIN, " with PyTorch's convolutions")):
            if key(backend, "frem", mode) not in seconds:
                continue
            times = ratio(seconds[key(backend, "frem", mode)], seconds[key("cnn", mode)])
            rows.append([f"FREM {HYBRID}{label}, {mode}: time relative to {CNN}", ratio_text(times), against])
    for other in others:
        for mode in networks.MODES:
            times = ratio(seconds[key(other, "frem", mode)], seconds[key(first, "frem", mode)])
            rows.append([f"FREM {HYBRID}, {mode}: {other} relative to {first}", ratio_text(times), ""])
    loading = ratio(seconds[networks.LOADER], seconds[key(first, "frem", "training")])
    rows.append(
        ["a batch of the loader, with crop and jitter: relative to a training step", f"{loading.median:.1%}", ""]
    )
    mine, cnn = peaks[key(first, "frem", "training")], peaks["cnn/training"]
    memory = f"{mine / cnn:.2f}" if mine and cnn else "-"
    rows.append([f"FREM {HYBRID}, training: peak memory relative to {CNN}", memory, ""])
    note = "Peak memory is that of the process in a step, minus what it held with model and input loaded, "
    note += "measured in a separate process (except compiled). The reference's rounds include its first, cold step."
    if first != "native":
        note = "Peak memory is that of the GPU's allocator in a step, minus what it held with model and input loaded."
    return Table("In short", ["", "measured", "paper"], rows, note)


def growth_tables(result: Result) -> list[Table]:
    laws, points = [], []
    for axis, found in result["axes"].items():
        time, memory = (law and law[0] for law in (found["time_law"], found["memory_law"]))
        exponents = (time, found["time_exponent_at_the_end"], memory)
        reach = f"{found['values'][0]:g} to {found['values'][-1]:g}"
        laws.append([axis, reach, *("-" if e is None else f"{e:.2f}" for e in exponents)])
        for value, peak in zip(found["values"], found["peak_bytes"], strict=True):
            points.append([axis, f"{value:g}", time_text(spread(found["seconds"][str(value)])), memory_text(peak)])
    note = f"Capsules per layer: times those of {HYBRID}; its convolutions widen with them. "
    note += f"Batch {result['batch']} where the batch is not what grows."
    columns = ["what grows", "from, to", "exponent of time", "between the last two", "exponent of memory"]
    return [
        Table(f"Growth of a {result.get('backend', 'native')} FREM training step", columns, laws, note),
        Table("Growth, point by point", ["what grows", "value", "time, ms", "peak memory, MB"], points),
    ]


def limits_tables(result: Result) -> list[Table]:
    seconds, flops, moved = result["seconds"], result["flops"], result["bytes"]
    peak = flops["matrix product"] / spread(seconds["matrix product"]).least / 1e9
    copy = moved["copy"] / spread(seconds["copy"]).least / 1e9
    rows = []
    for layer in result["layers"]:
        for method in METHODS:
            name = key(method, layer["name"])
            time = spread(seconds[name])
            rate = flops[name] / time.least / 1e9
            rows.append(
                [
                    layer_label(layer),
                    LABELS[method],
                    f"{flops[name] / 1e9:.3f}",
                    time_text(time),
                    f"{rate:.1f}",
                    f"{rate / peak:.0%}",
                    f"{moved[name] / 2**20:.1f}",
                    f"{moved[name] / time.least / 1e9 / copy:.0%}",
                ]
            )
    columns = ["layer", "method", "GFLOP", "ms", "GFLOP/s", "of the matrix product", "MB moved", "of the copy"]
    note = f"float32 matrix product: {peak:.0f} GFLOP/s; copy: {copy:.1f} GB/s (read and written); best of the rounds. "
    note += "Operations by the formula in torchcaps.bench.flops, bytes as if each map were moved once."
    backend = result.get("backend", "native").capitalize()
    return [Table(f"{backend} forward kernels against the machine, batch {result['batch']}", columns, rows, note)]


def loop_tables(result: Result) -> list[Table]:
    rows = []
    for name, label in {"frem": "hybrid32, FREM, with decoder", "cnn": "cnn32"}.items():
        bare, loop = (result["seconds"][key(name, what)] for what in ("bare", "loop"))
        rows.append([label, time_text(spread(bare)), time_text(spread(loop)), ratio_text(ratio(loop, bare))])
    note = "The bare step is forward, loss, backward and optimiser on one batch; the loop is torchcaps train's."
    columns = ["network", "bare step, ms", "step in the loop, ms", "loop / bare"]
    return [Table(f"The training loop, 32x32 crops, batch {result['batch']}", columns, rows, note)]


def norm_tables(result: Result) -> list[Table]:
    rows = []
    for model in norm.NETWORKS:
        row = [model]
        for mode in networks.MODES:
            plain, normed = (result["seconds"][key(model, name, mode)] for name in norm.NORMS)
            row += [time_text(spread(plain)), time_text(spread(normed)), ratio_text(ratio(normed, plain))]
        rows.append(row)
    columns = ["network"]
    for mode in networks.MODES:
        columns += [f"{mode}, ms", "with batch norm, ms", "relative"]
    note = "In evaluation norms of convolutions are folded into them"
    if result.get("backend", "native") == "native":
        note += ", and those of routed poses are written by the core"
    note += "."
    return [Table(f"Batch normalisation, batch {result['batch']}", columns, rows, note)]


def recipe_tables(result: Result) -> list[Table]:
    seconds, rows = result["seconds"], []
    for model in networks.RECIPES:
        row = [model]
        for mode in networks.MODES:
            mine, cnn = seconds[key(model, mode)], seconds[key(networks.BASELINE, mode)]
            row += [time_text(spread(mine)), ratio_text(ratio(mine, cnn))]
        rows.append(row)
    columns = ["network"]
    for mode in networks.MODES:
        columns += [f"{mode}, ms", f"relative to {networks.BASELINE}"]
    note = f"As in the recipes smallnorb-frem and smallnorb-cnn: pairs of {result['side']}x{result['side']} images, "
    note += "batch normalisation; but with the spread loss for all."
    return [Table(f"The networks of our recipes, batch {result['batch']}", columns, rows, note)]


TABLES: dict[str, Callable[[Result], list[Table]]] = {
    "routing": routing_tables,
    "networks": network_tables,
    "growth": growth_tables,
    "limits": limits_tables,
    "loop": loop_tables,
    "norm": norm_tables,
    "recipes": recipe_tables,
}


def tables(part: str, result: Result) -> list[Table]:
    """All tables of a part."""
    return TABLES[part](result)


def machine_line(machine: Result) -> str:
    gpu = f"{machine['gpu']}; " if "gpu" in machine else ""
    return (
        f"{gpu}{machine['cpu']}, {count(machine['cores'], 'core')}, {count(machine['threads'], 'thread')}, "
        f"{machine['vector_path']}; "
        f"torch {machine['torch']}, torchcaps {machine['torchcaps']}, Python {machine['python']}; {machine['date']}"
    )


def as_markdown(results: Result) -> str:
    """The whole run as markdown, machine first."""
    blocks = [machine_line(results["machine"]) + (" (a quick run)" if results["quick"] else "")]
    for part, result in results["parts"].items():
        for table in tables(part, result):
            blocks.append(f"### {table.title}")
            blocks.append(table.as_markdown())
    return "\n\n".join(blocks)
