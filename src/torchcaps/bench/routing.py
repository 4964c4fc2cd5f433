"""Parts 1, 3 and 4: routing by itself, as its sizes grow, and against what this machine can do."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from torchcaps.bench.devices import clock_of
from torchcaps.bench.flops import layer_bytes, layer_flops
from torchcaps.bench.measure import Contender, Note, fitted_exponent, key, race, spread, under
from torchcaps.bench.memory_probe import peak_memory
from torchcaps.bench.plan import HYBRID, METHODS, Growth, Plan
from torchcaps.bench.workloads import NetworkCase, RoutingCase, RoutingMode, forget_inputs, hybrid_layers

MODES: tuple[RoutingMode, ...] = ("forward", "forward+backward")
ALL = "all"


def measure_routing(plan: Plan, note: Note) -> dict[str, Any]:
    """Times by backend/method/layer/mode; peak memory of forward and backward by backend/method/layer.

    The time of all layers together is the sum of the five within a round. Their memory is not a sum: it is measured
    with the five running forward and then backward, as in a network.
    """
    layers = hybrid_layers()
    contenders = []
    for backend, every in plan.every.items():
        for method in METHODS:
            for n, layer in enumerate(layers):
                for mode in MODES:
                    case = RoutingCase(
                        layers=(n,), method=method, mode=mode, batch=plan.batch, backend=backend, device=plan.device
                    )
                    name = key(backend, method, layer.name, mode)
                    contenders.append(Contender(name, case.build(), every, warm_up=plan.warms_up(backend)))
    times = race(contenders, plan.rounds, note, clock_of(plan.device))
    del contenders
    forget_inputs()

    groups = {layer.name: (n,) for n, layer in enumerate(layers)} | {ALL: tuple(range(len(layers)))}
    probes = {
        key(backend, method, name): RoutingCase(
            layers=group, method=method, mode="forward+backward", batch=plan.batch, backend=backend, device=plan.device
        )
        for backend in plan.backends
        for method in METHODS
        for name, group in groups.items()
    }
    note(f"peak memory of {len(probes)} cases")
    return {
        "batch": plan.batch,
        "layers": [asdict(layer) for layer in layers],
        "backends": plan.backends,
        "seconds": times,
        "peak_bytes": dict(zip(probes, peak_memory(list(probes.values())), strict=True)),
    }


def axes(plan: Growth, backend: str = "native", device: str = "cpu") -> dict[str, dict[float, NetworkCase]]:
    """What grows -> its values and the step at each of them; all else is as in ``hybrid64``."""

    def step(batch: int = plan.batch, capsule_factor: float = 1, **options: Any) -> NetworkCase:
        where: dict[str, Any] = {"backend": backend, "device": device}
        size: dict[str, Any] = {"batch": batch, "capsule_factor": capsule_factor}
        return NetworkCase(model=HYBRID, mode="training", options=options, **size, **where)

    return {
        "batch": {batch: step(batch) for batch in plan.batches},
        "image side": {side: step(image_size=side) for side in plan.sides},
        "capsules per layer": {factor: step(capsule_factor=factor) for factor in plan.capsule_factors},
        "iterations": {count: step(iterations=count) for count in plan.iterations},
    }


def measure_growth(plan: Plan, note: Note) -> dict[str, Any]:
    """For each axis: values, seconds of each round at each value, peak bytes, and the exponents fitted to both.

    An exponent is fitted to the minimum over the rounds: noise only ever adds.
    """
    result: dict[str, Any] = {"batch": plan.growth.batch, "backend": plan.first, "axes": {}}
    for axis, cases in axes(plan.growth, plan.first, plan.device).items():
        contenders = [Contender(str(value), case.build()) for value, case in cases.items()]
        times = race(contenders, plan.growth.rounds, under(axis, note), clock_of(plan.device))
        del contenders
        note(f"peak memory along {axis}")
        peaks = peak_memory(list(cases.values()))
        values = list(cases)
        timed = [(value, spread(times[str(value)]).least) for value in values if any(times[str(value)])]
        known = [(value, peak) for value, peak in zip(values, peaks, strict=True) if peak is not None and peak > 0]
        result["axes"][axis] = {
            "values": values,
            "seconds": times,
            "peak_bytes": peaks,
            "time_law": law(timed),
            "memory_law": law(known),
            # small steps are mostly fixed costs, so the largest two values show where it is heading
            "time_exponent_at_the_end": (law(timed[-2:]) or (None,))[0],
        }
    return result


def law(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The power law of some (size, value), or None where there are not two of them."""
    return fitted_exponent(*zip(*points, strict=True)) if len(points) > 1 else None


def measure_limits(plan: Plan, note: Note) -> dict[str, Any]:
    """Times of the kernels by method/layer, of a matrix product and of a copy, with their operations and bytes."""
    layers = hybrid_layers()
    side = plan.matrix_side
    left, right, product = (torch.randn(side, side, device=plan.device) for _ in range(3))
    source = torch.ones(plan.copy_bytes // 4, device=plan.device)
    target = torch.empty_like(source)
    contenders = [
        Contender("matrix product", lambda: torch.mm(left, right, out=product)),
        Contender("copy", lambda: target.copy_(source)),
    ]
    flops, moved = {"matrix product": 2 * side**3}, {"copy": 2 * 4 * source.numel()}  # a copy reads and writes
    for method in METHODS:
        for n, layer in enumerate(layers):
            name = key(method, layer.name)
            where: dict[str, Any] = {"backend": plan.first, "device": plan.device}
            case = RoutingCase(layers=(n,), method=method, mode="forward", batch=plan.batch, **where)
            contenders.append(Contender(name, case.build()))
            flops[name], moved[name] = layer_flops(method, layer, plan.batch), layer_bytes(layer, plan.batch)
    times = race(contenders, plan.limit_rounds, note, clock_of(plan.device))
    forget_inputs()
    return {
        "batch": plan.batch,
        "backend": plan.first,
        "layers": [asdict(layer) for layer in layers],
        "flops": flops,
        "bytes": moved,
        "seconds": times,
    }
