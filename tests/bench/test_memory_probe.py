"""Memory of a step in a process of its own."""

import json
import os
import signal
import sys

import pytest

from torchcaps.bench import memory_probe
from torchcaps.bench.memory_probe import measure_in_fork, peak_memory
from torchcaps.bench.workloads import AllocationCase, NetworkCase, RoutingCase, from_plain, to_plain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")

MEGABYTE = 2**20


@pytest.mark.slow
def test_known_allocations() -> None:
    sizes = [64 * MEGABYTE, 256 * MEGABYTE, 64 * MEGABYTE]
    for size, peak in zip(sizes, peak_memory([AllocationCase(size) for size in sizes]), strict=True):
        assert peak is not None
        assert abs(peak - size) < 16 * MEGABYTE  # the first step in a process also loads a little code


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_probe, "reset_peak", lambda: False)
    memory_probe.return_freed_memory()  # else the fork begins with it, and returning it hides as much of the peak
    peak = measure_in_fork(AllocationCase(256 * MEGABYTE))  # a fork starts with no history of its own
    assert peak is not None
    assert abs(peak - 256 * MEGABYTE) < 32 * MEGABYTE


def test_a_failing_case_says_why() -> None:
    with pytest.raises(SystemExit, match="no such"):
        measure_in_fork(NetworkCase(model="no such", mode="inference", batch=1))


def test_a_failing_probe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="the memory probe failed"):
        peak_memory([AllocationCase(1)])


def test_a_killed_case_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_probe, "measure", lambda case: os.kill(os.getpid(), signal.SIGKILL))
    assert measure_in_fork(AllocationCase(1)) is None


@pytest.mark.parametrize(
    "case",
    [
        NetworkCase(model="cnn64", mode="training", batch=2, options={"num_classes": 3}),
        RoutingCase(layers=(0, 4), method="em", mode="forward", batch=2, backend="reference"),
        AllocationCase(5),
    ],
)
def test_cases_survive_the_journey(case: NetworkCase | RoutingCase | AllocationCase) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(case)))) == case
