"""Part 4: how near the native forward kernels come to what this machine can do."""

from dataclasses import asdict
from typing import Any

import torch

from torchcaps.bench.flops import layer_bytes, layer_flops
from torchcaps.bench.measure import Contender, Note, key, race
from torchcaps.bench.plan import METHODS, Plan
from torchcaps.bench.workloads import RoutingCase, forget_inputs, hybrid_layers


def measure_limits(plan: Plan, note: Note) -> dict[str, Any]:
    """Times of the kernels by method/layer, of a matrix product and of a copy, with their operations and bytes."""
    layers = hybrid_layers()
    side = plan.matrix_side
    left, right, product = torch.randn(side, side), torch.randn(side, side), torch.empty(side, side)
    source = torch.ones(plan.copy_bytes // 4)
    target = torch.empty_like(source)
    contenders = [
        Contender("matrix product", lambda: torch.mm(left, right, out=product)),
        Contender("copy", lambda: target.copy_(source)),
    ]
    flops, moved = {"matrix product": 2 * side**3}, {"copy": 2 * 4 * source.numel()}  # a copy reads and writes
    for method in METHODS:
        for n, layer in enumerate(layers):
            name = key(method, layer.name)
            case = RoutingCase(layers=(n,), method=method, mode="forward", batch=plan.batch)
            contenders.append(Contender(name, case.build()))
            flops[name], moved[name] = layer_flops(method, layer, plan.batch), layer_bytes(layer, plan.batch)
    times = race(contenders, plan.limit_rounds, note)
    forget_inputs()
    return {
        "batch": plan.batch,
        "layers": [asdict(layer) for layer in layers],
        "flops": flops,
        "bytes": moved,
        "seconds": times,
    }
