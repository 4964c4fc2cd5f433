"""Networks learn: a step lowers the loss, and a handful of images can be learned by heart."""

from collections.abc import Iterator

import pytest
import torch

from support import tiny_hybrid
from torchcaps import create_model, list_models
from torchcaps.functional import list_routings, margin_loss, reconstruction_loss, spread_loss
from torchcaps.models import HybridNetwork, Network, Stage, network_class


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These networks are too small for several threads to pay."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def assert_step_lowers_loss(model: Network) -> None:
    """One step of gradient descent, of length 0.001 (in float64: some starts have very small gradients)."""
    image = torch.randn(4, model.in_channels, model.image_size, model.image_size, dtype=torch.float64)
    label = torch.arange(4) % model.num_classes
    before = spread_loss(model.double()(image).activation, label, margin=0.9)
    before.backward()
    length = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item()
    assert length > 0
    torch.optim.SGD(model.parameters(), lr=0.001 / length).step()
    with torch.no_grad():
        after = spread_loss(model(image).activation, label, margin=0.9)
    assert after < before


# squash makes small poses much smaller, layer by layer: from the default start agreement's gradient is near 1e-11
STARTS = {"agreement": {"transform_std": 1.0, "conv_init": "torch"}}
CASES = [
    *[(name, {}) for name in list_models() if not network_class(name).has_capsules],
    *[
        (name, {"routing": routing, **STARTS.get(routing, {})})
        for name in list_models()
        if name.startswith("hybrid")
        for routing in list_routings()
    ],
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_a_step_lowers_the_loss(name: str, options: dict) -> None:
    torch.manual_seed(0)
    assert_step_lowers_loss(create_model(name, image_size=16, **options))


@pytest.mark.parametrize("name", list_models())
def test_a_step_lowers_the_loss_at_full_size(name: str) -> None:
    torch.manual_seed(0)
    assert_step_lowers_loss(create_model(name))


@pytest.mark.parametrize("routing", list_routings())
def test_every_parameter_gets_a_gradient(routing: str) -> None:
    torch.manual_seed(0)
    model = tiny_hybrid(routing, decoder=True)
    image, label = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    output = model(image)
    target = torch.nn.functional.interpolate(image, (32, 32))
    loss = margin_loss(output.activation, label) + reconstruction_loss(model.reconstruct(output.pose, label), target)
    loss.backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    wanted = {"primary.activation.weight", "primary.activation.bias"}  # these two methods use no input activation
    assert unused == (wanted if routing in ("agreement", "frms_variant") else set())
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("routing", ["frem", "frms", "em"])
def test_a_tiny_batch_is_learned_by_heart(routing: str) -> None:
    torch.manual_seed(0)
    stages = (Stage(capsules=4, residual=3), Stage(capsules=4))
    model = HybridNetwork(stages, num_classes=3, image_size=16, first_channels=32, routing=routing, conv_init="torch")
    image, label = torch.rand(8, 1, 16, 16), torch.randperm(8) % 3
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        optimiser.zero_grad()
        spread_loss(model(image).activation, label, margin=0.4).backward()
        optimiser.step()
    activation = model(image).activation
    assert (activation.argmax(1) == label).all()
    assert spread_loss(activation, label, margin=0.1) == 0  # and not by a hair
