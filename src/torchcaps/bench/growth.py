"""Part 3: how time and memory of a native FREM training step grow."""

from typing import Any

from torchcaps.bench.measure import Contender, Note, fitted_exponent, race, spread, under
from torchcaps.bench.memory_probe import peak_memory
from torchcaps.bench.plan import HYBRID, Growth, Plan
from torchcaps.bench.workloads import NetworkCase


def axes(plan: Growth) -> dict[str, dict[float, NetworkCase]]:
    """What grows -> its values and the step at each of them; all else is as in ``hybrid64``."""

    def step(batch: int = plan.batch, capsule_factor: float = 1, **options: Any) -> NetworkCase:
        return NetworkCase(model=HYBRID, mode="training", batch=batch, capsule_factor=capsule_factor, options=options)

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
    result: dict[str, Any] = {"batch": plan.growth.batch, "axes": {}}
    for axis, cases in axes(plan.growth).items():
        contenders = [Contender(str(value), case.build()) for value, case in cases.items()]
        times = race(contenders, plan.growth.rounds, under(axis, note))
        del contenders
        note(f"peak memory along {axis}")
        peaks = peak_memory(list(cases.values()))
        values, least = list(cases), [spread(times[str(value)]).least for value in cases]
        known = [(value, peak) for value, peak in zip(values, peaks, strict=True) if peak is not None and peak > 0]
        result["axes"][axis] = {
            "values": values,
            "seconds": times,
            "peak_bytes": peaks,
            "time_law": fitted_exponent(values, least),
            "memory_law": fitted_exponent(*zip(*known, strict=True)) if len(known) > 1 else None,
            # small steps are mostly fixed costs, so the largest two values show where it is heading
            "time_exponent_at_the_end": fitted_exponent(values[-2:], least[-2:])[0],
        }
    return result
