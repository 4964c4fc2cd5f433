"""CONTRIBUTING.md, "A new routing method", step by step: ``cosine_routing.py`` is the method's own file."""

import importlib
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.testing import assert_close

from routing_contract import RoutingContract
from support import random_capsules, tiny_hybrid
from torchcaps import functional as F
from torchcaps import use_backend
from torchcaps.functional import registry
from torchcaps.nn import CapsuleConv2d
from torchcaps.ops.backend import BackendUnavailableError


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    """Importing the file registers the method; afterwards it is gone again, for the tests over the registry."""
    importlib.import_module("cosine_routing")
    yield
    del registry._METHODS["cosine"], sys.modules["cosine_routing"]


class TestCosine(RoutingContract):
    @pytest.fixture
    def name(self) -> str:
        return "cosine"


def test_it_is_what_the_file_says() -> None:
    method = F.routing_method("cosine")
    assert "cosine" in F.list_routings()
    assert "cosine" not in F.list_routings(native=True)
    assert method.options == {"iterations": 2, "sharpness": 4.0}
    assert method.uses_activation


def test_layers_take_it_by_name_and_check_its_options() -> None:
    layer = CapsuleConv2d(2, 3, 2, routing="cosine", sharpness=2.0)
    assert layer.gain.tolist() == [1.0, 1.0, 1.0]
    capsules = random_capsules(1, 2, 4, 4, dtype=torch.float32)
    with use_backend("reference"):
        expected = layer(capsules)
    assert_close(tuple(layer(capsules)), tuple(expected))
    with use_backend("native"), pytest.raises(BackendUnavailableError, match="em, frem, frms, not by cosine"):
        layer(capsules)
    with pytest.raises(ValueError, match=r"sharpness=-1\.0: expected a positive, finite number"):
        CapsuleConv2d(2, 3, 2, routing="cosine", sharpness=-1.0)
    with pytest.raises(TypeError, match="'cosine' has no option 'kernel'; it has iterations, sharpness"):
        CapsuleConv2d(2, 3, 2, routing="cosine", kernel="gaussian")


def test_a_network_learns_with_it() -> None:
    """The upper half is white, the left half, every other row: after a few steps each is told from the others."""
    torch.manual_seed(0)
    network = tiny_hybrid("cosine", sharpness=2.0, transform_std=0.3)
    images, labels = torch.zeros(3, 1, 8, 8), torch.arange(3)
    images[0, :, :4], images[1, :, :, :4], images[2, :, ::2] = 1, 1, 1
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = F.activation_cross_entropy(network(images).activation, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.0  # log 3 = 1.1 is the guess
    assert losses[-1] < 0.1
    gains = [parameter for key, parameter in network.named_parameters() if key.endswith("gain")]
    assert len(gains) == 3
    assert all((gain - 1).abs().max() > 1e-3 for gain in gains)
