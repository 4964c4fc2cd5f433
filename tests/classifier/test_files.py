"""Classifiers on disk."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from torchcaps.classifier import Classifier, load, save
from torchcaps.data import DataError, Pipeline, Split
from torchcaps.models import HybridNetwork
from torchcaps.models.files import CARD, WEIGHTS, ModelFileError, load_weights

Tiny = Callable[..., Classifier]


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Path:
    """A classifier that was saved."""
    save(tiny(), tmp_path / "run")
    return tmp_path / "run"


def change_card(folder: Path, **changes: Any) -> None:
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, **changes}))


def change_weight(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = {name: value.clone() for name, value in load_file(folder / WEIGHTS).items()}
    change(weights)
    save_file(weights, folder / WEIGHTS)


@pytest.mark.parametrize("options", [{"decoder": True}, {"routing": "em"}, {"model": "cnn32"}], ids=str)
def test_round_trip_is_exact(tiny: Tiny, split: Split, tmp_path: Path, options: dict[str, Any]) -> None:
    classifier = tiny(**options)
    path = save(classifier, tmp_path / "new" / "run")
    assert sorted(file.name for file in path.parent.iterdir()) == [CARD, WEIGHTS]
    expected = classifier.predict(split.images)
    for place in (path, path.parent, str(path)):
        found = load(place)
        assert not found.training
        assert (found.classes, found.pipeline, found.card) == (classifier.classes, classifier.pipeline, {"seed": 0})
        for name, value in classifier.state_dict().items():
            assert torch.equal(found.state_dict()[name], value)
        assert torch.equal(found.predict(split.images).activation, expected.activation)


def test_the_card_keeps_every_field_of_the_pipeline(tiny: Tiny, tmp_path: Path) -> None:
    classifier = tiny()
    classifier.pipeline = Pipeline(
        crop=16,
        resize=19,
        brightness=0.1,
        contrast=0.3,
        shift=2,
        flip=True,
        standardise="set",
        mean=(1 / 3,),
        deviation=(1e-9,),
    )
    save(classifier, tmp_path)
    assert load(tmp_path).pipeline == classifier.pipeline


def test_weights_under_another_name(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "best.safetensors")
    with pytest.raises(ModelFileError, match=r"has no best.json beside it"):
        load(folder / "best.safetensors")
    (folder / CARD).rename(folder / "best.json")
    assert load(folder / "best.safetensors").classes[0] == "ant"


def test_saving_over_another(tiny: Tiny, folder: Path) -> None:
    other = tiny(1, routing="frms")
    save(other, folder)
    assert load(folder).options["routing"] == "frms"


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"there is no .*nowhere: expected the folder of a training run"):
        load(tmp_path / "nowhere")
    with pytest.raises(
        ModelFileError, match=r"has no model.safetensors: expected the folder of a finished training run"
    ):
        load(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"has no model.safetensors: finish .* --resume"):
        load(tmp_path)


def test_truncated_weights(folder: Path) -> None:
    path = folder / WEIGHTS
    classifier = load(folder)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for size in [*range(header + 2), *range(header, len(whole), 50_021), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"model.safetensors is not a valid safetensors file .* copy it again"):
            load_weights(classifier, path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ModelFileError, match="not a valid safetensors file"):
        load(folder)


def test_truncated_card(folder: Path) -> None:
    whole = (folder / CARD).read_text().rstrip()
    for size in range(len(whole)):
        (folder / CARD).write_text(whole[:size])
        with pytest.raises(ModelFileError, match=r"model.json is not valid JSON"):
            load(folder)
    (folder / CARD).write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match=r"model.json is not valid JSON"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "has format 1, expected 2: use the version"),
        ({"model": "hybrid99"}, "does not describe a network of this version .*hybrid99"),
        ({"model": None}, "does not describe"),
        ({"options": {"nonsense": 1}}, "does not describe .*no option 'nonsense'"),
        ({"options": []}, "does not describe"),
        ({"pipeline": {"crop": 16, "speed": 1}}, "does not describe .*speed"),
        ({"pipeline": {"crop": 32}}, "does not describe .*crops to 32"),
        ({"classes": ["a"]}, "does not describe .*1 names for the 3 classes"),
        ({"classes": None}, "does not describe"),
    ],
    ids=str,
)
def test_cards_of_others(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_card(folder, **changes)
    with pytest.raises(ModelFileError, match=message):
        load(folder)


def test_a_card_that_is_no_card(folder: Path) -> None:
    for text in ("[]", "3", "{}", '"model"'):
        (folder / CARD).write_text(text)
        with pytest.raises(ModelFileError, match="has format None, expected 2"):
            load(folder)


def test_weights_of_another_network(tiny: Tiny, folder: Path, tmp_path: Path) -> None:
    weights = save(tiny(first_channels=32), tmp_path / "wide").read_bytes()
    (folder / WEIGHTS).write_bytes(weights)
    with pytest.raises(ModelFileError, match=r"does not match its model.json \(.* has shape .* the network has .*\)"):
        load(folder)


def test_weights_too_few_and_too_many(folder: Path) -> None:
    change_weight(folder, lambda weights: weights.update(spare=torch.zeros(1)))
    with pytest.raises(ModelFileError, match="the network has no spare"):
        load(folder)
    change_weight(folder, lambda weights: (weights.pop("spare"), weights.pop("primary.pose.bias")))
    with pytest.raises(ModelFileError, match=r"primary.pose.bias is missing"):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite(folder: Path, value: float) -> None:
    change_weight(folder, lambda weights: weights["primary.pose.bias"].fill_(value))
    with pytest.raises(ModelFileError, match=r"not finite, in primary.pose.bias"):
        load(folder)


def test_options_that_json_has_not(tiny: Tiny, tmp_path: Path) -> None:
    classifier = tiny()
    classifier.options = {**classifier.options, "kernel": HybridNetwork}
    with pytest.raises(ModelFileError, match="cannot be described in JSON"):
        save(classifier, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root")
def test_no_permission(tiny: Tiny, folder: Path) -> None:
    (folder / WEIGHTS).chmod(0)
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        load(folder)
    folder.chmod(0o500)
    try:
        with pytest.raises(DataError, match="cannot be written: Permission denied"):
            save(tiny(), folder)
    finally:
        folder.chmod(0o700)


def test_no_place_to_write(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        save(tiny(), tmp_path / "file" / "run")
