"""That a case measures what it says."""

import pytest
import torch

from torchcaps.bench.workloads import NetworkCase


@pytest.mark.parametrize("plain", [False, True])
def test_whose_convolutions_run(plain: bool) -> None:
    step = NetworkCase(model="hybrid64", mode="training", batch=1, plain_convolutions=plain).build()
    with torch.profiler.profile() as profiler:
        step()
    names = {event.key for event in profiler.key_averages()}
    assert "torchcaps::route" in names
    assert ("torchcaps::pose_residual" in names) == (not plain)
