"""Runs that start from the body of another run's network."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import torchcaps
from torchcaps.cli import main
from torchcaps.errors import OptionError, UserError
from torchcaps.models import Network
from torchcaps.models.files import ModelFileError
from torchcaps.train import Recipe, fit, train
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.recipe import read_recipe, recipe_from_json
from train.tiny_runs import interrupted, rows_without_times, tiny, weights

RUN, CUT = Path("run"), Path("cut")
HEADS = {
    "hybrid32": ("class_capsules.", "decoder."),
    "poolcaps32": ("class_capsules.", "decoder."),
    "cnn32": ("layers.9.",),
}
FIELDS: dict[str, dict[str, Any]] = {
    "hybrid32": {},
    "poolcaps32": {"norm": "batch", "first_channels": 64, "routing": "frms"},
    "cnn32": {"norm": "batch", "loss": "cross-entropy", "weight_decay": 0.01},
}


@pytest.fixture(scope="module")
def pretrained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one epoch, by network."""
    found = {}
    for model, fields in FIELDS.items():
        folder = tmp_path_factory.mktemp("pretrained") / model
        train(tiny(images).with_fields(model=model, epochs=1, **fields), output=folder)
        found[model] = folder
    return found


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three classes of grey images, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for label, name in enumerate("abc"):
        (tmp_path / "three" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 100, (18, 18), dtype=np.uint8)
            pixels[6 * label : 6 * label + 6] += 120
            Image.fromarray(pixels).save(tmp_path / "three" / name / f"{number}.png")
    return tmp_path / "three"


def fine_tuned(source: Path | str, three: Path, **changes: Any) -> Recipe:
    start = Recipe.of(name="tuned", data=str(three), epochs=2, batch_size=8, checkpoint_every=3)
    return start.with_fields(pretrained=str(source), **changes)


def at_its_start(recipe: Recipe) -> Network:
    splits = load_data(recipe)
    torch.manual_seed(recipe.optimisation.seed)
    return make_classifier(recipe, splits, make_pipeline(recipe, splits)).network


def parts(values: dict[str, Tensor], model: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Body and head."""
    head = {name for name in values if name.startswith(HEADS[model])}
    return {n: v for n, v in values.items() if n not in head}, {n: v for n, v in values.items() if n in head}


@pytest.mark.parametrize("model", FIELDS)
def test_the_body_is_the_pretrained_one_and_the_head_is_new(
    pretrained: dict[str, Path], three: Path, model: str
) -> None:
    recipe = fine_tuned(pretrained[model], three)
    network = at_its_start(recipe)
    assert network.num_classes == 3
    before = load_file(pretrained[model] / "model.safetensors")
    body, head = parts(network.state_dict(), model)
    old_body, old_head = parts(before, model)
    assert body.keys() == old_body.keys()
    assert all(torch.equal(value, old_body[name]) for name, value in body.items())
    assert head.keys() == old_head.keys()
    weight = next(name for name in head if name.endswith("weight"))
    assert head[weight].shape != old_head[weight].shape


def test_settings_come_with_the_network(pretrained: dict[str, Path], three: Path) -> None:
    for model in FIELDS:
        found, theirs = fine_tuned(pretrained[model], three).flat(), read_recipe(pretrained[model]).flat()
        assert (found["model"], found["size"], found["first_channels"]) == (model, 16, theirs["first_channels"])
        names = (
            "norm",
            "conv_init",
            "loss",
            "rate",
            "routing_rate",
            *(() if model == "cnn32" else ("routing", "residual")),
        )
        assert {name: found[name] for name in names} == {name: theirs[name] for name in names}
        assert found["batch_size"] == 8  # the recipe's own
        assert fine_tuned(pretrained[model], three, rate=0.5).optimisation.rate == 0.5


@pytest.mark.parametrize("model", FIELDS)
@pytest.mark.parametrize("freeze", [False, True])
def test_what_trains(pretrained: dict[str, Path], three: Path, model: str, freeze: bool) -> None:
    finished = train(fine_tuned(pretrained[model], three, freeze=freeze), output=RUN)
    assert finished is not None
    start = parts(load_file(pretrained[model] / "model.safetensors"), model)[0]
    body, head = parts(finished.classifier.network.state_dict(), model)
    same = [name for name, value in body.items() if torch.equal(value, start[name])]
    if freeze:
        assert same == list(body)  # statistics of batch norm and their counters included
    else:
        assert not any(name.endswith(("weight", "running_mean")) for name in same)
    begun = parts(at_its_start(read_recipe(RUN)).state_dict(), model)[1]
    assert not any(torch.equal(value, begun[name]) for name, value in head.items() if name.endswith("weight"))
    assert all(parameter.requires_grad for parameter in finished.classifier.parameters())  # afterwards
    assert torchcaps.load(RUN).classes == ("a", "b", "c")


@pytest.mark.parametrize("model", ["hybrid32", "cnn32"])
def test_resumes_bit_by_bit(pretrained: dict[str, Path], three: Path, model: str) -> None:
    recipe = fine_tuned(pretrained[model], three, freeze=model == "cnn32")
    train(recipe, output=RUN)
    shutil.copytree(pretrained[model], "mine")
    for at, how in ((1, "power cut"), (5, "SIGTERM")):  # before any checkpoint, and within the second epoch
        shutil.rmtree(CUT, ignore_errors=True)
        with interrupted(at, how):
            train(recipe.with_just(pretrained="mine"), output=CUT)
        stored = read_recipe(CUT)
        assert stored.network.pretrained == str(Path("mine").resolve())
        if at == 5:
            shutil.rmtree("mine")  # the checkpoint has all that it gave
        train(stored, resume=CUT)
        assert weights(CUT) == weights(RUN)
        assert rows_without_times(CUT) == rows_without_times(RUN)


def test_mean_of_weights_keeps_the_statistics_of_a_frozen_body(pretrained: dict[str, Path], three: Path) -> None:
    finished = train(fine_tuned(pretrained["cnn32"], three, freeze=True, average_epochs=1), output=RUN)
    assert finished is not None
    start = load_file(pretrained["cnn32"] / "model.safetensors")
    body, _ = parts(finished.classifier.network.state_dict(), "cnn32")
    assert all(torch.equal(value, start[name]) for name, value in body.items())


def test_on_the_command_line(pretrained: dict[str, Path], three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(pretrained["cnn32"])
    main(["train", "--pretrained", source, "--freeze", "--data", "three", "--epochs", "1", "--output", str(RUN)])
    found = read_recipe(RUN)
    assert (found.network.model, found.network.pretrained, found.network.freeze) == ("cnn32", source, True)
    assert (found.images.size, found.data.data, found.name) == (16, str(three), "three")
    assert json.loads((RUN / "model.json").read_text())["card"]["recipe"]["network"]["pretrained"] == source
    main(["eval", str(RUN)])
    assert "error:" in capsys.readouterr().out


def test_fit(pretrained: dict[str, Path]) -> None:
    images = torch.randint(256, (24, 1, 20, 20), dtype=torch.uint8)
    labels = torch.arange(24) % 4
    classifier = fit(images, labels, pretrained=str(pretrained["cnn32"]), freeze=True, epochs=1, progress=False)
    assert classifier.pipeline.crop == 16
    start = load_file(pretrained["cnn32"] / "model.safetensors")
    body, head = parts(classifier.network.state_dict(), "cnn32")
    assert all(torch.equal(value, start[name]) for name, value in body.items())
    assert head["layers.9.weight"].shape[0] == 4


@pytest.mark.parametrize("name", ["turntable-frem-quick", "smallnorb-frem"])
def test_stereo_sets_as_the_pretrained_network_takes_them(name: str) -> None:
    found = torchcaps.train.recipe(name, pretrained="pretrained:mnist")
    assert (found.data.camera, found.network.model) == ("left", "headcaps32")
    assert torchcaps.train.recipe(name, pretrained="pretrained:mnist", camera="right").data.camera == "right"


def test_a_shipped_network_by_name(three: Path) -> None:
    Path("mnist").mkdir()
    recipe = fine_tuned("pretrained:mnist", three)
    assert (recipe.network.model, recipe.images.size, recipe.network.transform_std) == ("headcaps32", 32, 0.03)
    network = at_its_start(recipe)
    expected = torchcaps.load("pretrained:mnist").network.state_dict()
    assert torch.equal(network.state_dict()["body.0.conv.weight"], expected["body.0.conv.weight"])
    with pytest.raises(ModelFileError, match=r"mnist has no model\.safetensors"):
        fine_tuned("mnist", three)


def test_other_channels_are_refused(pretrained: dict[str, Path], three: Path) -> None:
    for file in three.rglob("*.png"):
        Image.open(file).convert("RGB").point(lambda value: min(255, value + 1)).save(file)
        pixels = np.array(Image.open(file))
        pixels[..., 0] //= 2
        Image.fromarray(pixels).save(file)
    message = (
        r"the images have 3 channels \(colour\), the pretrained network .*hybrid32 takes 1 channel \(grey\): convert"
    )
    with pytest.raises(OptionError, match=message):
        train(fine_tuned(pretrained["hybrid32"], three), output=RUN)
    assert not RUN.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"routing": "em"}, r"routing is 'em', the pretrained network .* has 'frem': leave routing out"),
        ({"model": "hybrid64", "strides": ()}, r"model is 'hybrid64', the pretrained network .* has 'hybrid32'"),
        ({"size": 24}, r"size is 24, the pretrained network .* has 16"),
        ({"iterations": 3}, "iterations is 3, the pretrained"),
        ({"routing_options": {"kernel": "gaussian"}}, "kernel is 'gaussian', the pretrained network .* has None"),
    ],
)
def test_settings_that_are_not_the_networks(
    pretrained: dict[str, Path], three: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        train(fine_tuned(pretrained["hybrid32"], three, **changes), output=RUN)


def test_the_new_layers_may_be_others(pretrained: dict[str, Path], three: Path) -> None:
    fields = {"class_shared": True, "class_coordinates": True, "transform_std": 0.1}
    network = at_its_start(fine_tuned(pretrained["hybrid32"], three, **fields))
    assert network.class_capsules.shared  # type: ignore[union-attr]


def test_what_cannot_be_meant(three: Path) -> None:
    with pytest.raises(UserError, match="freeze is for the body of a pretrained network: give pretrained with it"):
        Recipe.of(freeze=True)
    with pytest.raises(UserError, match="there is no nothing: expected the folder of a training run"):
        Recipe.of(pretrained="nothing")


def test_a_recipe_from_json_reads_no_network(pretrained: dict[str, Path], three: Path) -> None:
    recipe = fine_tuned(pretrained["hybrid32"], three, freeze=True).with_just(pretrained="gone")
    assert recipe_from_json(json.loads(json.dumps(recipe.as_json()))) == recipe
