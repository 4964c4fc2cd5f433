"""The paper's networks at their real size, the native core against the reference in float64: `make test-slow`."""

import pytest
import torch
from torch import Tensor

from torchcaps import create_model, use_backend
from torchcaps.functional import list_routings
from torchcaps.models import HybridNetwork

# Of each tensor in the l2 norm. A forward pass of some ten layers leaves 1e-6 (EM: 1e-5, it divides by variances).
# Gradients meet kinks, |u - v| of l1 and ReLU: of millions of terms, rounding puts a few on the other side. That is up
# to 1.2e-3 of a parameter's gradient, measured for both networks and three scales of votes; without it 1e-6 to 1e-5.
# One field of one image left out of the first layer's gradient is 6.6e-3 or more of its weight's, a border 1e-1.
OUTPUT, GRADIENT = 5e-5, 3e-3


def outputs_and_gradients(model: HybridNetwork, image: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    model.zero_grad()
    output = model(image)
    (output.pose.square().sum() + output.activation[:, 0].sum()).backward()
    outputs = {"pose": output.pose.detach(), "activation": output.activation.detach()}
    return outputs, {key: parameter.grad.clone() for key, parameter in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("routing", list_routings(native=True))
@pytest.mark.parametrize("name", ["hybrid64", "hybrid32"])
def test_native_training_step_is_the_reference_one(name: str, routing: str) -> None:
    torch.manual_seed(0)
    # votes as large as the poses: with smaller ones all couplings are alike, and routing is a mean
    model = create_model(name, routing=routing, conv_init="torch", transform_std=1.0)
    image = torch.randn(8, 1, model.image_size, model.image_size)
    with use_backend("native"):
        found = outputs_and_gradients(model, image)
    with use_backend("reference"):
        expected = outputs_and_gradients(model.double(), image.double())
    for ours, theirs, tolerance in zip(found, expected, (OUTPUT, GRADIENT), strict=True):
        assert ours.keys() == theirs.keys()
        for key, wanted in theirs.items():
            error = (ours[key] - wanted).norm() / wanted.norm()
            assert error < tolerance, f"{key}: off by {error:.1e}, normwise"
