"""How often ``torch.compile`` goes over the votes: the buffers of their size that Inductor's kernels read or write.

Counted in Inductor's own schedule for this machine's CPU, after fusion, by what it says that a kernel has to read and
to write at the least. The schedule for a GPU may fuse otherwise.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchcaps.bench.plan import METHODS
from torchcaps.functional.registry import routing_method
from torchcaps.ops import reference
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIZE, Capsules

BATCH, SIDE, CAPSULES, OUTPUTS, FIELD = 3, 8, 4, 8, 2  # 16 to 8, as in hybrid64's first layer
VOTES = BATCH * (SIDE // FIELD) ** 2 * FIELD**2 * CAPSULES * OUTPUTS * POSE_SIZE  # far more than any other number


def passes(method_name: str) -> dict[str, int]:
    """Reads and writes of all votes in a forward pass for inference, in one for training, and in its backward pass."""
    method = routing_method(method_name)
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator).requires_grad_()

    maps = (leaf(BATCH, n, SIDE, SIDE) for n in (POSE_SIZE * CAPSULES, CAPSULES))
    capsules = Capsules(*(m.detach().contiguous(memory_format=torch.channels_last).requires_grad_() for m in maps))
    weight = leaf(FIELD**2 * CAPSULES, OUTPUTS, 4, 4)
    parameters = {name: leaf(*start.shape) for name, start in method.parameters(OUTPUTS, POSE_SIZE).items()}
    window = Window((FIELD, FIELD), (FIELD, FIELD), (0, 0))

    def route(capsules: Capsules, weight: Tensor, parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        options = {"iterations": 2}
        return reference.route_map(capsules, weight, parameters, window=window, method=method, options=options)[:2]

    found = {}
    with schedules() as counts:
        with torch.no_grad():
            torch.compile(route, dynamic=False)(capsules, weight, parameters)
        [found["inference"]] = counts
        counts.clear()
        torch.compiler.reset()
        outputs = torch.compile(route, dynamic=False)(capsules, weight, parameters)
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
        found["forward"], found["backward"] = counts
    return found


@contextmanager
def schedules() -> Iterator[list[int]]:
    """The count of every graph that is compiled meanwhile."""
    from torch._inductor import config
    from torch._inductor.scheduler import Scheduler

    counts: list[int] = []
    generate: Any = Scheduler.codegen

    def count_and_generate(self: Any) -> Any:
        accesses = (
            node.get_read_write_buffer_accesses(include_reads=reads, include_writes=not reads)
            for node in self.nodes
            for reads in (True, False)
        )
        counts.append(sum(size >= 4 * VOTES for sizes in accesses for size in sizes.values()))
        return generate(self)

    torch.compiler.reset()
    Scheduler.codegen = count_and_generate  # type: ignore[method-assign]
    try:
        with config.patch(fx_graph_cache=False):  # what comes from the cache is not scheduled again
            yield counts
    finally:
        Scheduler.codegen = generate  # type: ignore[method-assign]
        torch.compiler.reset()


if __name__ == "__main__":
    for name in METHODS:
        print(name, passes(name))
