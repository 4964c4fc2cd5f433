"""Part 6: what batch normalisation adds to a network."""

from typing import Any

from torchcaps.bench.measure import Contender, Note, key, race
from torchcaps.bench.networks import MODES
from torchcaps.bench.plan import CNN, HYBRID, POOLCAPS, Plan
from torchcaps.bench.workloads import NetworkCase

NETWORKS = (HYBRID, POOLCAPS, CNN)
NORMS = {"plain": None, "batch": "batch"}


def measure_norm(plan: Plan, note: Note) -> dict[str, Any]:
    """Seconds by network, norm and mode; the capsules are FREM's, in the native core."""
    contenders = [
        Contender(
            key(model, name, mode),
            NetworkCase(model=model, mode=mode, batch=plan.batch, options={"norm": norm}).build(),
        )
        for model in NETWORKS
        for mode in MODES
        for name, norm in NORMS.items()
    ]
    return {"batch": plan.batch, "seconds": race(contenders, plan.rounds, note)}
