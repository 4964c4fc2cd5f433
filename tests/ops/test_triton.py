"""The Triton backend as far as a CPU can show it: in the interpreter (`triton_cases.py`), compiled for GPUs, chosen."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest import mock

import pytest
import torch

from torchcaps import BackendUnavailableError, Capsules, use_backend
from torchcaps.nn import CapsuleConv2d, PrimaryCapsules
from torchcaps.ops import compiled, dispatch, doctor, native
from torchcaps.ops.triton import available, launch, resources, table

HERE = Path(__file__)


def in_the_interpreter(*arguments: str) -> None:
    """Triton chooses the interpreter as it is imported: a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, launch.INTERPRET: "1"}
    cases = str(HERE.with_name("triton_cases.py"))
    root = HERE.parents[2]
    done = subprocess.run([*command, cases], env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_in_the_interpreter() -> None:
    in_the_interpreter()


@pytest.mark.slow
def test_more_in_the_interpreter() -> None:
    in_the_interpreter("-m", "slow")


def assert_within_means(
    kernel: str, method: str, iterations: int, capability: int, shape: tuple, /, **options: object
) -> None:
    inputs, outputs, many = shape
    how = resources.example(method, iterations, inputs, outputs, many_inputs=many, **options)
    found = resources.usage(kernel, how, capability)
    assert found.spilled == 0
    assert found.shared <= min(resources.LIMITS.values())  # so that it runs on 8.6 and 8.9, too


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("method", resources.METHODS)
def test_forward_kernels_compile_without_spills(method: str) -> None:
    assert_within_means("forward", method, 2, 80, (16, 32, False))


def test_a_backward_kernel_compiles_without_spills() -> None:
    assert_within_means("backward", "frem", 2, 90, (16, 32, False))


def depths(kernel: str, method: str) -> list[int]:
    """Numbers of iterations that ask of every entry of the table, and one for which the last entry stands in."""
    last = table.SPLITS[kernel, method][-1][0]
    beyond = [iterations for iterations in (1, 2, 3, 5, 6) if iterations > last]
    return [iterations for iterations in (1, 2, 3, 5, 6) if iterations <= last] + beyond[:1]


LAUNCHES = [
    (kernel, method, iterations)
    for kernel in resources.KERNELS
    for method in resources.METHODS
    for iterations in depths(kernel, method)
]


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("shape", resources.SHAPES, ids=str)
@pytest.mark.parametrize(("kernel", "method", "iterations"), LAUNCHES)
def test_every_launch_parameter(kernel: str, method: str, iterations: int, shape: tuple, capability: int) -> None:
    assert_within_means(kernel, method, iterations, capability, shape)


VARIANTS = [
    ("frem", {"kernel": "gaussian", "distance": "l2"}),
    ("frem", {"kernel": "gaussian", "plain": True}),
    ("frem", {"kernel": "clipped", "activation_kernel": "clipped", "plain": True}),
    ("frms", {"kernel": "gaussian", "distance": "l2"}),
    ("frms", {"kernel": "clipped", "plain": True}),
    *((method, {"shared": True, "has_offset": True}) for method in resources.METHODS),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", resources.KERNELS)
@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=str)
def test_other_options_compile_without_spills(kernel: str, method: str, options: dict) -> None:
    assert_within_means(kernel, method, 2, 80, (16, 32, False), **options)


@pytest.mark.slow
@pytest.mark.parametrize("method", resources.METHODS)
def test_poses_with_an_affine_compile_without_spills(method: str) -> None:
    assert_within_means("forward", method, 2, 80, (16, 32, False), has_affine=True)


def test_the_table_fills_whole_warps() -> None:
    for outputs, inputs, many in ((1, 1, False), (5, 3, False), (10, 32, True), (32, 8, False), (128, 8, False)):
        for method, kernel in ((m, k) for m in resources.METHODS for k in resources.KERNELS):
            how, warps = table.chosen(resources.example(method, 2, inputs, outputs, many_inputs=many), kernel)
            assert how.lanes >= outputs
            assert how.rows < 2 * inputs
            assert warps in (1, 2, 4, 8)
            assert (how, warps) in table.candidates(how, kernel)


def capsules() -> Capsules:
    return Capsules(torch.randn(1, 32, 2, 2), torch.rand(1, 2, 2, 2))


def test_on_the_cpu_it_says_what_to_do() -> None:
    with use_backend("triton"), pytest.raises(BackendUnavailableError, match=r"run on GPUs.*TRITON_INTERPRET=1"):
        CapsuleConv2d(2, 3)(capsules())
    with use_backend("triton"):  # no kernels of its own for these
        PrimaryCapsules(1, 2)(torch.randn(2, 1, 8, 8))
    assert "TRITON_INTERPRET" in doctor.findings()["triton"]


def test_without_triton_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(available, "MISSING", available._missing())
    assert "torchcaps[triton]" in (available.why_not_on(torch.device("cuda")) or "")


def test_an_old_triton_still_serves_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available.metadata, "version", lambda name: "3.4.0")
    assert "triton 3.4.0 is too old" in str(available._missing())
    assert available._absent() is None
    monkeypatch.setattr(available, "MISSING", available._missing())
    assert compiled.why_not(torch.device("cuda")) is None


@pytest.mark.skipif(native.core is None, reason="needs the native core")
def test_the_doctor_names_what_auto_takes() -> None:
    assert doctor.findings()["backend"].startswith("auto, which takes native on the CPU")


def test_auto_on_a_gpu_is_triton_and_then_the_next_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were one: the choice, and what follows a launch that fails."""
    monkeypatch.setattr(dispatch, "AUTO", dispatch.AUTO_ON_GPU)
    monkeypatch.setattr(available, "MISSING", None)
    monkeypatch.setattr(available, "is_interpreted", lambda: True)
    monkeypatch.setattr(available, "_failures", {})
    fails = mock.Mock(side_effect=launch.LaunchError("too little shared memory"))
    monkeypatch.setattr(launch, "forward", fails)
    layer = CapsuleConv2d(2, 3)
    monkeypatch.setattr(dispatch.compiled, "route_map", dispatch.reference.route_map)
    with use_backend("auto"), pytest.warns(UserWarning, match="too little shared memory. Another backend is used"):
        layer(capsules())
    assert fails.called
    with use_backend("triton"), pytest.raises(launch.LaunchError):
        layer(capsules())


def test_importing_torchcaps_does_not_import_triton() -> None:
    code = "import sys, torchcaps, torchcaps.nn; assert not any(m.split('.')[0] == 'triton' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_triton_of_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "pytorch-triton-rocm":
            raise metadata.PackageNotFoundError(name)
        return "3.6.0"

    monkeypatch.setattr(available.metadata, "version", version)
    assert "triton 3.6.0 is too old" in str(available._missing())
    monkeypatch.setattr(available, "DISTRIBUTIONS", ("triton",))  # of a name that is not known
    assert available._missing() is None


def test_a_folder_that_is_called_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available.util, "find_spec", lambda name: ModuleSpec(name, None, is_package=True))
    assert "triton is not installed" in str(available._missing())


def test_a_triton_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("libtriton.so is missing")

    monkeypatch.setattr(launch, "import_module", broken)
    with pytest.raises(launch.LaunchError, match=r"cannot be used \(ImportError: libtriton.so is missing\)"):
        launch.kernel_of("forward")


def test_maps_that_reach_further_than_offsets_do() -> None:
    pose = torch.empty_strided((1, 16, 3, 1), (2**31, 0, 2**30, 0), device="meta")
    assert available._reach(pose) == 2**31


def test_autotuning_takes_the_fastest_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    how = resources.example("frem", 2, 16, 32)
    own, *others = table.candidates(how, "forward")

    def measured(run: Callable[[], None], **_options: object) -> float:
        run()
        return 1.0 if ran[-1] == others[0] else 2.0

    def run(of: tuple) -> None:
        ran.append(of)
        if of == others[1]:
            raise RuntimeError("out of resources: shared memory")

    ran: list[tuple] = []
    monkeypatch.setattr("triton.testing.do_bench", measured)
    monkeypatch.setattr(table, "_tuned", {})
    assert table.tuned(how, "forward", run) == others[0]
    assert ran == [own, *others]
    assert table.tuned(how, "forward", run) == others[0]
    assert len(ran) == 1 + len(others)  # measured once


def test_autotuning_where_nothing_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    how = resources.example("em", 2, 16, 32)

    def fails(run: Callable[[], None], **_options: object) -> float:
        raise RuntimeError("no GPU")

    monkeypatch.setattr("triton.testing.do_bench", fails)
    monkeypatch.setattr(table, "_tuned", {})
    assert table.tuned(how, "backward", lambda of: None) == table.chosen(how, "backward")
