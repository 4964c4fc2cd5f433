"""That a case measures what it says."""

from typing import Any

import pytest
import torch

from torchcaps.bench.workloads import NetworkCase, RoutingCase


@pytest.mark.parametrize("plain", [False, True])
def test_whose_convolutions_run(plain: bool) -> None:
    step = NetworkCase(model="hybrid64", mode="training", batch=1, plain_convolutions=plain).build()
    with torch.profiler.profile() as profiler:
        step()
    names = {event.key for event in profiler.key_averages()}
    assert "torchcaps::route" in names
    assert ("torchcaps::pose_residual" in names) == (not plain)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (NetworkCase, {"model": "hybrid64", "mode": "inference"}),
        (NetworkCase, {"model": "hybrid64", "mode": "training"}),
        (NetworkCase, {"model": "cnn64", "mode": "training"}),
        (RoutingCase, {"layers": (0, 4), "method": "em", "mode": "forward"}),
        (RoutingCase, {"layers": (0, 4), "method": "frem", "mode": "forward+backward"}),
    ],
    ids=str,
)
def test_all_of_it_is_on_the_device(kind: Any, what: dict[str, Any]) -> None:
    """PyTorch's meta device, which computes nothing, refuses tensors of another one as a GPU does."""
    kind(**what, batch=2, backend="reference", device="meta").build()()
