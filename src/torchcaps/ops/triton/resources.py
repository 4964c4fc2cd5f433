"""What the kernels need of a GPU, found by compiling them without one: ``python -m torchcaps.ops.triton.resources``.

ptxas and cuobjdump come with triton.
"""

import argparse
import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.ops.triton import table
from torchcaps.ops.triton.how import How, as_constants

# Shared memory that one program may use, in bytes, by compute capability.
LIMITS = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}
KERNELS = ("forward", "backward")
METHODS = ("frem", "frms", "em")
# Input capsules of a place, output capsules, and whether the field has many: the layers of hybrid64, and beyond.
SHAPES = (
    *((8, 8, False), (16, 16, False), (16, 32, False), (64, 32, True), (32, 5, True), (32, 10, True), (8, 1, False)),
    (16, table.MOST_OUTPUTS, False),
)
POINTERS = (
    *("pose", "activation", "weight", "offset", "first", "second", "bandwidth", "scale", "shift"),
    *("out_pose", "out_activation", "by_out_pose", "by_out_activation"),
    *("by_pose", "by_activation", "by_weight", "by_first", "by_second", "by_bandwidth"),
)


class Usage(NamedTuple):
    """Of one compiled kernel. Spilled are the bytes of each thread's registers that went to memory."""

    registers: int
    spilled: int
    shared: int


def example(method: str, iterations: int, inputs: int, outputs: int, **options: Any) -> How:
    """A call with the default options, and others by name."""
    return How(
        method=method,
        iterations=iterations,
        kernel="linear",
        activation_kernel="linear",
        distance="l1",
        plain=False,
        activation_bandwidth=1.0,
        step=1.0,
        inverse_temperatures=tuple(0.01 * (1 - 0.95 ** (t + 1)) for t in range(iterations)),
        variance_floor=1e-8,
        inputs=inputs,
        outputs=outputs,
        rows=1,
        lanes=1,
    )._replace(**options)


def compiled(kernel: str, how: How, warps: int, target: tuple[str, int | str, int], map_type: str = "fp32") -> Any:
    """A kernel for channels-last maps, compiled for a target such as ``("cuda", 80, 32)``."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from torchcaps.ops.triton.kernels import backward, forward

    function = {"forward": forward.forward, "backward": backward.backward}[kernel]
    names = function.arg_names[:-1]
    maps = dict.fromkeys(("pose", "activation"), f"*{map_type}")
    types = {name: maps.get(name, "*fp32") if name in POINTERS else "i32" for name in names}
    constants = {"HOW": as_constants(how)} | {name: 1 for name in names if name.endswith("_c")}
    types |= dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in POINTERS}
    options = table.compiler_options(warps, nvidia=target[0] == "cuda")
    source = ASTSource(function, types, constants, aligned)
    return triton.compile(source, target=GPUTarget(*target), options=options)


def usage(kernel: str, how: How, capability: int) -> Usage:
    """With the table's launch parameters, on an NVIDIA GPU of that compute capability."""
    import triton

    found = compiled(kernel, *table.chosen(how, kernel), ("cuda", capability, 32))
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(found.asm["cubin"])
        text = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    numbers = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return Usage(numbers["REG"], numbers["STACK"] + numbers["LOCAL"], found.metadata.shared)


def main() -> None:
    """Print a table of all kernels and launch parameters."""
    parser = argparse.ArgumentParser(prog="python -m torchcaps.ops.triton.resources", description=__doc__)
    parser.add_argument("--capability", type=int, default=80, help="80: A100, 90: H100")
    parser.add_argument("--iterations", type=int, nargs="*", default=[1, 2, 3], help="of routing")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    given = parser.parse_args()
    print("| kernel | method | iterations | n | J | rows x lanes | warps | registers | spilled | shared bytes |")
    print("|" + "---|" * 10)
    for (n, outputs, many), method, t, kernel in itertools.product(SHAPES, given.methods, given.iterations, KERNELS):
        how = example(method, t, n, outputs, many_inputs=many)
        launched, warps = table.chosen(how, kernel)
        found = usage(kernel, how, given.capability)
        block = f"{launched.rows} x {launched.lanes}"
        print(f"| {kernel} | {method} | {t} | {n} | {outputs} | {block} | {warps} | ", end="")
        print(f"{found.registers} | {found.spilled} | {found.shared} |", flush=True)


if __name__ == "__main__":
    main()
