"""record_routing: what each layer's routing found."""

import copy

import pytest
import torch

from support import assert_near, oracle_conv, random_capsules, randomised, tiny_hybrid
from torchcaps import Routed, create_model, record_routing
from torchcaps.functional import list_routings
from torchcaps.nn import CapsuleConv2d

NAMES = ["stages.0", "stages.2", "class_capsules"]


@pytest.fixture
def image() -> torch.Tensor:
    return torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("routing", list_routings())
def test_names_shapes_and_sums(routing: str, image: torch.Tensor) -> None:
    model = tiny_hybrid(routing)
    with record_routing(model) as records:
        output = model(image)
    assert list(records) == NAMES
    shapes = {name: [tuple(r.coupling.shape) for r in calls] for name, calls in records.items()}
    assert shapes == {
        "stages.0": [(2, 4, 4, 8, 3)],
        "stages.2": [(2, 2, 2, 12, 2)],
        "class_capsules": [(2, 1, 1, 8, 3)],
    }
    for [routed] in records.values():
        assert isinstance(routed, Routed)
        assert routed.pose.shape == (*routed.activation.shape, 16)
        assert routed.activation.shape == (*routed.coupling.shape[:3], routed.coupling.shape[-1])
        torch.testing.assert_close(routed.coupling.sum(-1), torch.ones(routed.coupling.shape[:-1]))
    assert torch.equal(records["class_capsules"][0].pose[:, 0, 0], output.pose)
    assert torch.equal(records["class_capsules"][0].activation[:, 0, 0], output.activation)


def test_hybrid64_has_the_declared_maps() -> None:
    model = create_model("hybrid64")
    with record_routing(model) as records, torch.no_grad():
        model(torch.randn(1, 1, 64, 64))
    assert [tuple(calls[0].coupling.shape[1:]) for calls in records.values()] == [
        (32, 32, 16, 8),
        (16, 16, 32, 8),
        (8, 8, 32, 16),
        (4, 4, 64, 32),
        (1, 1, 512, 5),
    ]


@pytest.mark.parametrize("routing", list_routings())
def test_a_layer_alone_records_the_oracles_coupling(routing: str) -> None:
    layer, capsules = randomised(CapsuleConv2d(2, 3, routing=routing)), random_capsules(2, 2, 2, 4)
    with record_routing(layer) as records:
        layer(capsules)
    [[routed]] = records.values()
    assert_near(routed.coupling.detach(), oracle_conv(layer, capsules, routing, (2, 2, 0), iterations=2)[2])


def test_recording_changes_no_result(image: torch.Tensor) -> None:
    model = tiny_hybrid()
    before = model(image)
    with record_routing(model):
        recorded = model(image)
    # a faster path than the recorded one may differ in the last bits
    assert_near(tuple(recorded), tuple(before), 1e-5)


def test_every_call_and_none_after(image: torch.Tensor) -> None:
    model = tiny_hybrid()
    model(image)
    with record_routing(model) as records:
        model(image)
        model(image[:1])
    model(image)
    for calls in records.values():
        assert [call.pose.shape[0] for call in calls] == [2, 1]


def test_nested(image: torch.Tensor) -> None:
    model = tiny_hybrid()
    with record_routing(model) as outer:
        model(image)
        with record_routing(model.class_capsules) as inner:
            pass
        with record_routing(model) as second:
            model(image)
        seen = len(outer["class_capsules"])
        model(image)
    model(image)
    assert list(inner.values()) == [[]]
    assert [len(calls) for calls in second.values()] == [1, 1, 1]
    assert len(outer["class_capsules"]) == seen + 1


def test_exception(image: torch.Tensor) -> None:
    model = tiny_hybrid()
    with pytest.raises(RuntimeError, match="stop"), record_routing(model) as records:  # noqa: PT012
        model(image)
        raise RuntimeError("stop")
    model(image)
    assert [len(calls) for calls in records.values()] == [1, 1, 1]


def test_model_without_routing() -> None:
    with record_routing(torch.nn.ReLU()) as records:
        pass
    assert records == {}


def test_deepcopy_while_recording(image: torch.Tensor) -> None:
    model = tiny_hybrid()
    with record_routing(model) as records:
        model(image)
        twin = copy.deepcopy(model)
    twin(image)
    assert [len(calls) for calls in records.values()] == [1, 1, 1]
