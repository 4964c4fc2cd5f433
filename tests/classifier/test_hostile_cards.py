"""Cards that were changed, by accident or on purpose: a message, and never the memory that they ask for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchcaps.classifier import Classifier, load, save
from torchcaps.models.files import CARD, WEIGHTS, ModelFileError

Tiny = Callable[..., Classifier]
MOST = 1_000_000  # values of a tensor: the tiny network's largest has some thousands, images at use some more


class Allocations(TorchDispatchMode):
    """Counts the values of the largest tensor that any operation gives, but for those on the meta device."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for value in tree_leaves(output):
            if isinstance(value, Tensor) and value.device.type != "meta":
                self.largest = max(self.largest, value.numel())
        return output


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose card names many options."""
    from torchcaps.data import Pipeline

    options: dict[str, Any] = {
        "num_classes": 3,
        "image_size": 16,
        "in_channels": 1,
        "first_channels": 16,
        "routing": "frem",
        "iterations": 2,
        "bandwidth": 1.0,
        "transform_std": 0.1,
        "conv_init": "torch",
        "norm": None,
        "residual": False,
        "fields": [2, 2, 2],
        "strides": [2, 2, 2],
        "paddings": [0, 0, 0],
        "class_shared": True,
        "decoder": False,
    }
    pipeline = Pipeline(crop=16, resize=20, standardise="set", mean=(0.5,), deviation=(0.25,))
    folder = tmp_path_factory.mktemp("saved")
    save(Classifier("hybrid32", options, pipeline, ("a", "b", "c"), {"seed": 0}), folder)
    return folder


def places(card: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be changed in a card."""
    if path:
        yield path
    items = card.items() if isinstance(card, dict) else enumerate(card) if isinstance(card, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(card: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A card with another value in one place."""
    card = json.loads(json.dumps(card))
    inner = card
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return card


def check(folder: Path, card: Any) -> None:
    """A changed card is loaded or refused, and what was loaded can be used; without much memory."""
    (folder / CARD).write_text(json.dumps(card))
    with Allocations() as allocations:
        try:
            classifier = load(folder)
        except ModelFileError:
            classifier = None
    assert allocations.largest < MOST
    if classifier is not None and classifier.source_size < 100:  # else many images at use, as was asked for
        classifier.predict(torch.zeros(1, classifier.network.in_channels, 24, 24))


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, 10**6, 10**9, 10**30, 10**400, -(10**9)]),
    st.sampled_from([0.0, -1.0, 0.5, 2.5, 1e-308, 1e38, 1e308, float("inf"), float("nan")]),
    st.sampled_from(["", "frem", "em", "batch", "paper", "x" * 1000, "\0"]),
    st.lists(st.integers(-1, 10**6), max_size=4),
    st.dictionaries(st.sampled_from(["a", "classes", "crop"]), st.integers(), max_size=2),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change(saved: Path, data: st.DataObject) -> None:
    original = (saved / CARD).read_text()
    card = json.loads(original)
    path = data.draw(st.sampled_from(list(places(card))), label="place")
    try:
        check(saved, changed(card, path, data.draw(HOSTILE, label="value")))
    finally:
        (saved / CARD).write_text(original)


@pytest.mark.parametrize(
    ("model", "options", "pipeline", "message"),
    [
        ("hybrid32", {"num_classes": 1_000_000}, {}, "has shape"),
        ("hybrid32", {"num_classes": 10_000_000}, {}, "num_classes=1e.07, expected at most 1000000"),
        ("hybrid32", {"first_channels": 160_000}, {}, "primary.pose.weight has shape"),
        ("hybrid32", {"iterations": 10**9}, {}, "iterations=1e.09, expected at most 100"),
        ("hybrid32", {"paddings": [10**5] * 3}, {}, "paddings=100000, expected at most 64"),
        ("cnn32", {"image_size": 4096}, {"crop": 4096, "resize": 4096}, "image_size=4096, expected at most 2048"),
        ("hybrid32", {}, {"resize": 1_000_000}, "resize=1000000, expected at most 2048"),
        ("hybrid32", {}, {"resize": 1e308}, "resize=1e.308, expected at most 2048"),
        ("hybrid32", {}, {"resize": 20.5}, "resize is 20.5, expected a whole number"),
        ("hybrid32", {}, {"brightness": float("nan")}, "brightness=nan, expected"),
        ("hybrid32", {}, {"standardise": "set"}, "means of 0 channels, the network takes 1"),
    ],
    ids=str,
)
def test_what_a_card_may_not_ask_for(
    tiny: Tiny, tmp_path: Path, model: str, options: dict[str, Any], pipeline: dict[str, Any], message: str
) -> None:
    save(tiny(model=model), tmp_path)
    card = json.loads((tmp_path / CARD).read_text())
    names = card["classes"]
    if 3 < options.get("num_classes", 3) <= 1_000_000:
        names = ["a"] * options["num_classes"]
    card |= {"classes": names, "options": card["options"] | options, "pipeline": card["pipeline"] | pipeline}
    (tmp_path / CARD).write_text(json.dumps(card))
    with Allocations() as allocations, pytest.raises(ModelFileError, match=message):
        load(tmp_path)
    assert allocations.largest < MOST


def test_the_count_sees_what_a_network_takes(saved: Path) -> None:
    with Allocations() as allocations:
        load(saved)
    assert 1000 < allocations.largest < MOST


def test_weights_of_a_type_that_no_network_has(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(tiny(), tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    weights["primary.pose.bias"] = weights["primary.pose.bias"].to(torch.float8_e4m3fn)
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(ModelFileError, match=r"primary.pose.bias is of type F8"):
        load(tmp_path)


def test_a_large_resize_is_made_for_a_few_images_at_a_time(saved: Path) -> None:
    original = (saved / CARD).read_text()
    card = json.loads(original)
    card["pipeline"]["resize"] = 2048
    try:
        (saved / CARD).write_text(json.dumps(card))
        classifier = load(saved)
        with Allocations() as allocations:
            found = classifier.predict(torch.zeros(40, 1, 16, 16, dtype=torch.uint8))
    finally:
        (saved / CARD).write_text(original)
    assert len(found.names) == 40
    assert allocations.largest <= 4 * 2048**2  # of 40 that the whole would take
