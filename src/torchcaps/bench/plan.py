"""How much is measured: the full run, and the quick one."""

import math
from dataclasses import dataclass, replace

from torchcaps.functional.registry import list_routings
from torchcaps.models import HYBRID64
from torchcaps.ops.triton.table import MOST_OUTPUTS

PARTS = ("routing", "networks", "growth", "limits", "loop", "norm", "recipes")
METHODS = tuple(list_routings(native=True))

HYBRID, CNN, POOLCAPS = "hybrid64", "cnn64", "poolcaps64"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The values along which a training step is followed; ``batch`` holds where the batch is not what grows."""

    rounds: int
    batch: int
    batches: tuple[int, ...]
    sides: tuple[int, ...]
    capsule_factors: tuple[float, ...]  # of hybrid64's capsules in every layer
    iterations: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes and rounds of a run. A slow backend takes part in every n-th round only (``every``)."""

    batch: int
    rounds: int
    every: dict[str, int]  # backend -> n; also the choice of backends
    growth: Growth
    limit_rounds: int
    matrix_side: int
    copy_bytes: int
    loop_rounds: int
    loop_steps: int  # a multiple of ten
    device: str = "cpu"

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(self.every)

    @property
    def first(self) -> str:
        """The backend that the others are compared with, and that is followed as sizes grow."""
        return self.backends[0]

    def warms_up(self, backend: str) -> bool:
        """On the CPU the reference takes too long for a step that does not count."""
        return backend != "reference" or self.device != "cpu"


def full_plan() -> Plan:
    """About a quarter of an hour on two cores, nearly all of it the reference; the first time also compilations."""
    return Plan(
        batch=50,
        rounds=10,
        every={"native": 1, "compiled": 5, "reference": 5},
        growth=Growth(
            rounds=3,
            batch=8,
            batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            sides=(32, 64, 128, 256),
            capsule_factors=(0.5, 1, 2, 4),
            iterations=(1, 2, 3, 4, 5),
        ),
        limit_rounds=20,
        matrix_side=2048,
        copy_bytes=2**28,
        loop_rounds=5,
        loop_steps=30,
    )


def quick_plan() -> Plan:
    """About a minute on two cores: a look at the shape of the results, not their last digit."""
    return Plan(
        batch=4,
        rounds=3,
        every={"native": 1, "reference": 3},
        growth=Growth(
            rounds=2,
            batch=2,
            batches=(1, 4, 16),
            sides=(32, 64, 128),
            capsule_factors=(0.5, 1, 2),
            iterations=(1, 3, 5),
        ),
        limit_rounds=5,
        matrix_side=1024,
        copy_bytes=2**27,
        loop_rounds=2,
        loop_steps=30,
    )


def on_gpu(plan: Plan, device: str, *, triton: bool) -> Plan:
    """The same on a GPU: without the native core, and every backend in every round, for none is slow there.

    ``triton`` says whether that backend serves here.
    """
    names = [*(["triton"] if triton else []), *(name for name in plan.every if name != "native")]
    most = MOST_OUTPUTS / max(stage.capsules for stage in HYBRID64) if triton else math.inf
    factors = tuple(factor for factor in plan.growth.capsule_factors if factor <= most)
    growth = replace(plan.growth, capsule_factors=factors)
    return replace(plan, device=device, every=dict.fromkeys(names, 1), growth=growth)
