"""Peak memory of one step, each in a process of its own: ``python -m torchcaps.bench.memory_probe '<json>'``.

The process imports PyTorch once and forks for each case. A fork has run nothing yet: no pool of threads, no memory of
another case. It builds model and input, resets the high-water mark of its resident memory, runs the step once, without
warming up, and answers with the mark less what was resident before. Backward buffers and the optimizer's state count,
model and input do not.

Only ``compiled`` is measured in the calling process, which has compiled the step already (a new one would take minutes
for it), and runs the step once before: compiling is not a part of it.

On a GPU the device's allocator knows its peak, and all cases run in the calling process, once before they are measured.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchcaps.bench.workloads import Case, forget_inputs, from_plain, to_plain

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(cases: Sequence[Case]) -> list[int | None]:
    """Bytes that each case's step takes at its peak; None where its process did not live to tell (no memory left)."""
    import torch

    if any(case.device != "cpu" for case in cases):
        return [measure_on_gpu(case) for case in cases]
    probed = [case for case in cases if case.backend != "compiled"]
    request = {"threads": torch.get_num_threads(), "cases": [to_plain(case) for case in probed]}
    command = [sys.executable, "-m", "torchcaps.bench.memory_probe", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the memory probe failed:\n{done.stderr.strip()}")
    answers = iter(json.loads(done.stdout))
    return [measure(case) if case.backend == "compiled" else next(answers) for case in cases]


def resident(name: str) -> int:
    """VmRSS or VmHWM in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def reset_peak() -> bool:
    """Make the high-water mark the present value; False where the system does not let us."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True


def highest_ever() -> int:
    """The largest resident memory of this process so far, in bytes, on any system with ``getrusage``."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def return_freed_memory() -> None:
    """Let the C library give back what it only keeps for later."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def measure(case: Case) -> int:
    """Peak of the case's step in this process, in bytes."""
    if case.backend == "compiled":
        case.build()()  # anew below, so that no gradient and no state of the optimizer is there before
    forget_inputs()
    step = case.build()
    return_freed_memory()
    if reset_peak():
        before = resident("VmRSS")
        step()
        return resident("VmHWM") - before
    before = highest_ever()
    step()
    return highest_ever() - before


def measure_on_gpu(case: Case) -> int | None:
    """Peak of the case's step on its device, in bytes; None where it does not fit."""
    import torch

    try:
        case.build()()  # compilations, and workspaces that libraries keep, are no part of it
        forget_inputs()
        step = case.build()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    except torch.OutOfMemoryError:
        forget_inputs()
        torch.cuda.empty_cache()
        return None


def measure_in_fork(case: Case) -> int | None:
    """The same in a child, which may be killed without harm to the rest."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(measure(case)).encode())
            os._exit(0)
        except BaseException:  # a fork must never return into its parent's code
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"no measurement of {case}")
    return int(answer) if answer else None


def main() -> None:
    import torch
    import torch._dynamo  # an optimizer's first step imports it, which would be time and memory of every fork

    request = json.loads(sys.argv[1])
    torch.set_num_threads(request["threads"])
    print(json.dumps([measure_in_fork(from_plain(case)) for case in request["cases"]]))


if __name__ == "__main__":
    main()
