"""How fast routing can be on a GPU at best: bytes over bandwidth or operations over peak, whichever is longer.

Fused: a forward pass reads maps and matrices and writes poses and activations, once each. A backward pass reads maps,
matrices, outputs and their gradients, writes the gradients, and writes and reads again the kernel's partial sums of
those of the matrices. Votes are made in each sweep over a field: FREM and FRMS sweep for each mean and for the
activation, EM for each mean and each variance; a backward pass goes through these sweeps again, and then back, EM once
per iteration.

Compiled: the same maps, and ``PASSES`` over the votes, which are in memory.

Operations are those of torchcaps.bench.flops, plus votes made more than once. Backward, each counts as two, for a
product has two gradients. Both are at the least what is done: padding, caches that miss, launches, empty lanes and
arithmetic that is no multiply-add come on top.
"""

from typing import Literal, NamedTuple

from torchcaps.bench.flops import field_flops, layer_bytes
from torchcaps.bench.networks import PAPER
from torchcaps.bench.plan import HYBRID, METHODS
from torchcaps.bench.report import LABELS
from torchcaps.bench.workloads import LayerShape, hybrid_layers
from torchcaps.ops.triton.launch import number_of_parts
from torchcaps.runs.text import Table, short
from torchcaps.types import POSE_SIZE

BATCH, ITERATIONS = 50, 2
Way = Literal["forward", "backward"]
WAYS: tuple[Way, ...] = ("forward", "backward")

# Reads and writes of all votes, by `python -m experiments.tools.vote_passes` (torch 2.13.0, on a CPU).
PASSES = {
    "em": {"inference": 5, "forward": 8, "backward": 19},
    "frem": {"inference": 5, "forward": 5, "backward": 13},
    "frms": {"inference": 5, "forward": 5, "backward": 13},
}


class Gpu(NamedTuple):
    """A device by its data sheet."""

    name: str
    bandwidth: float  # bytes per second
    peak: float  # float32 operations per second, without tensor cores


GPUS = (Gpu("A100", 1.55e12, 19.5e12), Gpu("RTX 4090", 1.0e12, 82e12))


class Work(NamedTuple):
    """What a pass of a layer moves and computes at least."""

    moved: int  # bytes
    flops: int

    def bound(self, gpu: Gpu) -> float:
        """Seconds that it takes at least."""
        return max(self.moved / gpu.bandwidth, self.flops / gpu.peak)


def sweeps(method: str, iterations: int = ITERATIONS) -> int:
    """How often a forward pass goes over the inputs of a field."""
    return 2 * iterations if method == "em" else iterations + 1


def sweeps_back(method: str, iterations: int = ITERATIONS) -> int:
    """How often a backward pass does in reverse."""
    return iterations if method == "em" else sweeps(method, iterations)


def vote_bytes(layer: LayerShape, batch: int) -> int:
    """All votes of a layer in float32."""
    return 4 * batch * layer.fields * layer.inputs * layer.outputs * POSE_SIZE


def map_bytes(layer: LayerShape, batch: int, way: Way) -> int:
    """Maps, matrices and gradients, each read or written once."""
    once = layer_bytes(layer, batch)
    return once if way == "forward" else 2 * once  # what a forward pass reads and writes, and the gradient of each


def fused(method: str, layer: LayerShape, batch: int, way: Way) -> Work:
    """One kernel that stores no votes."""
    each, times = field_flops(method, layer.inputs, layer.outputs, ITERATIONS), sweeps(method)
    if way == "forward":
        flops = each.total + (times - 1) * each.votes
        return Work(map_bytes(layer, batch, way), batch * layer.fields * flops)
    flops = 3 * each.total + (times + sweeps_back(method) - 1) * each.votes
    sums = number_of_parts(batch * layer.fields, layer.inputs * layer.outputs)
    workspace = 2 * sums * 4 * layer.inputs * layer.outputs * POSE_SIZE  # written, and read again
    return Work(map_bytes(layer, batch, way) + workspace, batch * layer.fields * flops)


def compiled(method: str, layer: LayerShape, batch: int, way: Way, *, training: bool = True) -> Work:
    """The reference as ``torch.compile`` makes it, with its votes in memory."""
    count = PASSES[method][way if training else "inference"]
    flops = field_flops(method, layer.inputs, layer.outputs, ITERATIONS).total * (1 if way == "forward" else 2)
    moved = map_bytes(layer, batch, way) + count * vote_bytes(layer, batch)
    return Work(moved, batch * layer.fields * flops)


def layers_table() -> Table:
    """Each layer and pass."""
    rows = []
    for layer in hybrid_layers():
        for method in METHODS:
            for way in WAYS:
                ours, theirs = (make(method, layer, BATCH, way) for make in (fused, compiled))
                times = [short(1e6 * work.bound(gpu)) for gpu in GPUS for work in (ours, theirs)]
                work = [short(number) for one in (ours, theirs) for number in (one.moved / 1e6, one.flops / 1e9)]
                rows.append([f"{layer.inputs} to {layer.outputs}, {layer.fields}", LABELS[method], way, *work, *times])
    heads = [f"{gpu.name}, {name}, us" for gpu in GPUS for name in ("fused", "compiled")]
    columns = [
        "layer, fields",
        "method",
        "pass",
        "fused, MB",
        "fused, GFLOP",
        "compiled, MB",
        "compiled, GFLOP",
        *heads,
    ]
    return Table(f"Bounds for each capsule layer of {HYBRID}, batch {BATCH}, training", columns, rows)


def network_table() -> Table:
    """All layers together, beside the paper's whole networks."""
    rows = []
    for method in METHODS:
        for mode, label in (("inference", "inference"), ("training", "training step")):
            ways = WAYS if mode == "training" else WAYS[:1]
            bounds = []
            for gpu in GPUS:
                pairs = [(layer, way) for layer in hybrid_layers() for way in ways]
                ours = sum(fused(method, layer, BATCH, way).bound(gpu) for layer, way in pairs)
                theirs = sum(
                    compiled(method, layer, BATCH, way, training=mode == "training").bound(gpu) for layer, way in pairs
                )
                bounds += [short(1e3 * ours), short(1e3 * theirs)]
            rows.append([LABELS[method], label, *bounds, short(1e3 * PAPER[method][mode])])
    for mode, label in (("inference", "inference"), ("training", "training step")):
        rows.append(["CNN", label, *["-"] * 4, short(1e3 * PAPER["cnn"][mode])])
    heads = [f"{gpu.name}, {name}, ms" for gpu in GPUS for name in ("fused", "compiled")]
    columns = ["method", "", *heads, "paper, Tesla P40, whole network, ms"]
    return Table(f"Bounds for the capsule layers of {HYBRID} together, batch {BATCH}", columns, rows)


def markdown() -> str:
    """Both tables, for the docs."""
    return "\n\n".join(f"### {table.title}\n\n{table.as_markdown()}" for table in (network_table(), layers_table()))


if __name__ == "__main__":
    print(markdown())
