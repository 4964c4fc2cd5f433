"""Part 1: routing alone, each capsule layer of ``hybrid64``, each method, each backend."""

from dataclasses import asdict
from typing import Any

from torchcaps.bench.measure import Contender, Note, key, race
from torchcaps.bench.memory_probe import peak_memory
from torchcaps.bench.plan import METHODS, Plan
from torchcaps.bench.workloads import RoutingCase, RoutingMode, forget_inputs, hybrid_layers

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
                    case = RoutingCase(layers=(n,), method=method, mode=mode, batch=plan.batch, backend=backend)
                    name = key(backend, method, layer.name, mode)
                    contenders.append(Contender(name, case.build(), every, warm_up=backend != "reference"))
    times = race(contenders, plan.rounds, note)
    del contenders
    forget_inputs()

    groups = {layer.name: (n,) for n, layer in enumerate(layers)} | {ALL: tuple(range(len(layers)))}
    probes = {
        key(backend, method, name): RoutingCase(
            layers=group, method=method, mode="forward+backward", batch=plan.batch, backend=backend
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
