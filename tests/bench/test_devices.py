"""Measuring on a GPU, as far as a machine without one can see: its queue, clock and allocator are made up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.tiny_plan import tiny_plan
from torchcaps.bench import devices, memory_probe
from torchcaps.bench.devices import clock_of, event_clock, triton_serves, use_device, wall_clock
from torchcaps.bench.measure import Contender, race
from torchcaps.bench.memory_probe import peak_memory
from torchcaps.bench.plan import full_plan, on_gpu, quick_plan
from torchcaps.cli import bench as command
from torchcaps.cli.bench import bench
from torchcaps.errors import OptionError
from torchcaps.ops.triton.launch import LaunchError


@dataclass
class Gpu:
    """A device that works through its queue after the host has gone on, and an allocator that keeps its peak."""

    now: float = 0.0  # seconds; the host takes no time
    queued: float = 0.0  # when it will have done what was asked of it
    done: float = 0.0
    allocated: int = 0
    peak: int = 0
    largest: int = 1000
    notes: list[str] = field(default_factory=list)

    def launch(self, seconds: float) -> None:
        self.queued = max(self.queued, self.now) + seconds

    def synchronize(self) -> None:
        self.now = self.done = self.queued

    def allocate(self, size: int) -> None:
        if self.allocated + size > self.largest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def free(self, size: int) -> None:
        self.allocated -= size

    def reset_peak(self) -> None:
        self.peak = self.allocated


class Event:
    def __init__(self, gpu: Gpu, enable_timing: bool = False) -> None:
        self.gpu, self.timed, self.time = gpu, enable_timing, -1.0

    def record(self) -> None:
        self.time = max(self.gpu.queued, self.gpu.now)  # when the queue comes to it

    def synchronize(self) -> None:
        self.gpu.now = self.gpu.done = max(self.gpu.now, self.time)

    def elapsed_time(self, end: "Event") -> float:
        assert self.timed
        assert end.timed
        assert end.time <= self.gpu.done, "the device has not come to the event yet"
        return 1000 * (end.time - self.time)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    replaced: dict[str, Any] = {
        "Event": lambda **options: Event(made, **options),
        "synchronize": made.synchronize,
        "empty_cache": lambda: made.notes.append("emptied"),
        "memory_allocated": lambda: made.allocated,
        "max_memory_allocated": lambda: made.peak,
        "reset_peak_memory_stats": made.reset_peak,
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: made.notes.append(f"set {device}"),
        "get_device_name": lambda device: "Made-up GPU",
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_a_step_takes_the_time_of_the_device_and_of_nothing_before(gpu: Gpu) -> None:
    gpu.launch(5.0)
    assert event_clock(lambda: gpu.launch(0.25)) == pytest.approx(0.25)
    assert gpu.done == pytest.approx(5.25)  # it has waited for the step


def test_which_clock() -> None:
    assert clock_of("cpu") is wall_clock
    assert clock_of("cuda") is clock_of("cuda:1") is event_clock


def test_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = iter([2.0, 2.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(hands))
    assert wall_clock(lambda: None) == 0.5


def test_a_race_on_the_device(gpu: Gpu) -> None:
    contenders = [Contender("a", lambda: gpu.launch(1.0)), Contender("b", lambda: gpu.launch(3.0), every=2)]
    assert race(contenders, 2, clock=event_clock) == {"a": [1.0, 1.0], "b": [3.0, None]}


@pytest.mark.parametrize("warm_up", [True, False])
def test_a_contender_that_does_not_fit_has_no_times(gpu: Gpu, warm_up: bool) -> None:
    contenders = [
        Contender("large", lambda: gpu.allocate(2000), warm_up=warm_up),
        Contender("small", lambda: gpu.launch(1.0)),
    ]
    assert race(contenders, 2, clock=event_clock) == {"large": [None, None], "small": [1.0, 1.0]}
    assert gpu.notes.count("emptied") == (1 if warm_up else 2)


@dataclass
class Case:
    """A step that takes some memory for a while; the first one also makes a workspace that stays."""

    gpu: Gpu
    step: int
    model: int = 100
    workspace: int = 50
    device: str = "cuda"
    backend: str = "compiled"
    built: int = 0

    def build(self) -> Callable[[], None]:
        self.built += 1
        self.gpu.allocate(self.model)

        def run() -> None:
            self.gpu.allocate(self.workspace)
            self.workspace = 0
            self.gpu.allocate(self.step)
            self.gpu.free(self.step)

        return run


def test_peak_memory_is_the_allocators(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_probe, "measure_in_fork", None)  # a device does not survive a fork
    small, large = Case(gpu, step=200), Case(gpu, step=30, model=0, workspace=0)
    cases: Any = [small, large]
    assert peak_memory(cases) == [200, 30]
    assert small.built == 2


def test_peak_memory_of_what_does_not_fit(gpu: Gpu) -> None:
    cases: Any = [Case(gpu, step=2000), Case(gpu, step=30)]
    assert peak_memory(cases) == [None, 30]


# the device that is asked for


@pytest.mark.parametrize("name", ["tpu", "mps", "", "cuda:x"])
def test_a_device_that_is_none(name: str) -> None:
    with pytest.raises(OptionError, match=r"--device .*: expected cpu or cuda"):
        use_device(name)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match=r"--device cuda: PyTorch .* finds no GPU here; expected .* --device cpu"):
        bench(device="cuda")


def test_the_gpu_that_was_named(gpu: Gpu) -> None:
    assert use_device("cpu") == "cpu"
    assert gpu.notes == []
    assert use_device("cuda:1") == "cuda:1"
    assert gpu.notes == ["set cuda:1"]
    with pytest.raises(OptionError, match="--device cuda:2: expected one of cuda:0, cuda:1"):
        use_device("cuda:2")


def test_plans_for_a_gpu() -> None:
    full = on_gpu(full_plan(), "cuda", triton=True)
    assert (full.first, full.backends, full.device) == ("triton", ("triton", "compiled", "reference"), "cuda")
    assert set(full.every.values()) == {1}
    assert full.growth.capsule_factors == (0.5, 1, 2)  # with more capsules than the Triton kernels route to
    assert on_gpu(full_plan(), "cuda", triton=False).growth == full_plan().growth
    assert all(full.warms_up(backend) for backend in full.backends)
    assert not full_plan().warms_up("reference")
    assert on_gpu(quick_plan(), "cuda", triton=False).backends == ("reference",)


def test_whether_triton_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise LaunchError("no")

    monkeypatch.setattr(devices, "use_backend", lambda name: torch.no_grad())
    assert triton_serves("cpu")
    monkeypatch.setattr(devices, "use_backend", refuse)
    assert not triton_serves("cpu")


@pytest.mark.parametrize(
    "parts", ["limits", pytest.param("routing,networks,growth,norm", marks=pytest.mark.slow)], ids=str
)
def test_a_run_without_the_core(
    parts: str, gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the device itself: the steps run on the CPU, by the device's clock and allocator."""
    pytest.importorskip("matplotlib")
    clocked: list[str] = []

    def clock(step: Callable[[], object]) -> float:
        clocked.append("step")
        return 0.001 + wall_clock(step)

    monkeypatch.setattr("torchcaps.ops.native.core", None)
    monkeypatch.setattr("torchcaps.ops.native.MISSING", "no core (for this test)")
    for part in ("routing", "networks"):
        monkeypatch.setattr(f"torchcaps.bench.{part}.clock_of", lambda device: clock)
        monkeypatch.setattr(f"torchcaps.bench.{part}.peak_memory", lambda cases: [2**20 + n for n in range(len(cases))])
    monkeypatch.setattr(command, "full_plan", tiny_plan)
    monkeypatch.setattr(devices, "triton_serves", lambda device: False)
    monkeypatch.setattr(command, "on_gpu", lambda plan, device, triton: on_gpu(plan, "cpu", triton=False))
    monkeypatch.setenv("COLUMNS", "200")
    bench(output=tmp_path, only=parts, device="cuda")
    shown = capsys.readouterr().out
    assert shown.startswith("Made-up GPU; ")
    assert clocked
    tables = shown.split("written:")[0].replace("no native core", "")
    assert "native" not in tables.lower()
    if parts == "limits":
        assert "Reference forward kernels" in shown
    bench(output=tmp_path, markdown=True)
