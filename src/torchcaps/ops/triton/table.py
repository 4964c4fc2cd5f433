"""Launch parameters: how many input capsules a block has, and how many threads share a pair of capsules.

A thread holds the votes, centres and adjoints of its pair, 16 numbers each, in registers. The table is chosen such that
no kernel spills them (``python -m torchcaps.ops.triton.resources`` prints what each needs): where a method has more
state than a thread has registers, 2 or 4 threads share a pair. ``TORCHCAPS_TRITON_AUTOTUNE=1`` measures instead, at the
first call of each shape.
"""

import math
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torchcaps.ops.triton.how import How

AUTOTUNE = "TORCHCAPS_TRITON_AUTOTUNE"
MOST_OUTPUTS = 64  # with more of them nothing was compiled
MOST_REGISTERS = 255  # of a thread
MOST_WARPS = 8  # of 32 threads: more of them would have fewer registers each
MANY_INPUTS = 128  # of the whole field: from here on fields are few, and each gets more threads

# (kernel, method): (iterations up to, threads per pair). The last entry holds for more iterations, too.
SPLITS: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {
    ("forward", "frem"): ((2, 1), (3, 2)),
    ("forward", "frms"): ((3, 1), (5, 2), (6, 4)),
    ("forward", "em"): ((2, 2),),
    ("backward", "frem"): ((2, 2), (3, 4)),
    ("backward", "frms"): ((2, 2), (3, 4)),
    ("backward", "em"): ((1, 2), (2, 4)),
}

_tuned: dict[tuple[How, str], tuple[How, int]] = {}


def power_of_two(number: int) -> int:
    """The least one that is not smaller."""
    return 1 << (number - 1).bit_length()


def split_of(how: How, kernel: str) -> int:
    """Threads per pair."""
    entries = SPLITS[kernel, how.method]
    return next((split for most, split in entries if how.iterations <= most), entries[-1][1])


def with_threads(how: How, pairs: int, split: int) -> tuple[How, int]:
    """A block of so many pairs, or as near to it as the call's sizes allow, and the number of warps."""
    lanes = power_of_two(how.outputs)
    rows = min(power_of_two(how.inputs), max(1, pairs // lanes))
    warps = max(1, min(MOST_WARPS, rows * lanes * split // 32))
    return how._replace(rows=rows, lanes=lanes), warps


def chosen(how: How, kernel: str) -> tuple[How, int]:
    """The table's parameters for a call: the size of its blocks, and the number of warps."""
    split = split_of(how, kernel)
    pairs = min(128, 32 * MOST_WARPS // split) if how.many_inputs else 32
    return with_threads(how, pairs, split)


def candidates(how: How, kernel: str) -> list[tuple[How, int]]:
    """What autotuning tries: the table's parameters first, then others that make sense."""
    others = [with_threads(how, pairs, split) for split in (1, 2, 4) for pairs in (32, 64, 128, 256)]
    return list(dict.fromkeys([chosen(how, kernel), *others]))


def compiler_options(warps: int, *, nvidia: bool) -> dict[str, Any]:
    """What Triton is asked for.

    ``enable_fp_fusion`` is given because its default will change; ``num_stages`` concerns loads for tl.dot, which these
    kernels have not. ``maxnreg`` keeps ptxas from spilling registers so that more programs fit on a processor.
    """
    options = {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
    return options | {"maxnreg": MOST_REGISTERS} if nvidia else options


def autotunes() -> bool:
    """Whether ``TORCHCAPS_TRITON_AUTOTUNE=1`` is set."""
    return os.environ.get(AUTOTUNE, "0") == "1"


def tuned(how: How, kernel: str, run: Callable[[tuple[How, int]], None]) -> tuple[How, int]:
    """The fastest of the candidates, measured once per call's options and sizes. Each run writes the same results."""
    if (how, kernel) not in _tuned:
        from triton.testing import do_bench

        times: dict[tuple[How, int], float] = {chosen(how, kernel): math.inf}  # which is taken if none can be measured
        for of in candidates(how, kernel):
            with suppress(Exception):  # one that needs more than this GPU has
                times[of] = do_bench(lambda of=of: run(of), warmup=5, rep=20)
        _tuned[how, kernel] = min(times, key=lambda of: times[of])
    return _tuned[how, kernel]
