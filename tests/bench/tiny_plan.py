"""A run of the benchmark that takes seconds."""

from torchcaps.bench.plan import Growth, Plan


def tiny_plan() -> Plan:
    """Every part, at its smallest."""
    growth = Growth(rounds=1, batch=1, batches=(1, 2), sides=(32, 64), capsule_factors=(0.5, 1), iterations=(1, 2))
    every = {"native": 1, "reference": 2}
    return Plan(
        batch=1,
        rounds=2,
        every=every,
        growth=growth,
        limit_rounds=2,
        matrix_side=64,
        copy_bytes=2**16,
        loop_rounds=1,
        loop_steps=10,
    )
