"""Recipes by name, as JSON, for a folder, and on the command line."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from torchcaps import create_model
from torchcaps.cli import main
from torchcaps.cli.train import train_command
from torchcaps.data import Split, Splits
from torchcaps.errors import OptionError, UserError
from torchcaps.train import Recipe, folder_recipe, list_recipes, recipe, train
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.recipe import PART_OF, read_recipe, recipe_from_json
from train.tiny_runs import interrupted

CHANNELS, CLASSES = {"cifar10": 3}, {"smallnorb": 5, "turntable": 5}


def test_every_cell_of_the_tables_has_a_recipe() -> None:
    names = list_recipes()
    assert len(names) == len(set(names)) == 5 * 4 * 5
    for data in ("smallnorb", "mnist", "fashion-mnist", "cifar10", "turntable"):
        for method in ("frem", "frms", "em", "cnn"):
            assert {f"{data}-{method}{variant}" for variant in ("", "-paper", "-short", "-small", "-quick")} <= set(
                names
            )


def flat(name: str) -> SimpleNamespace:
    """All fields of a recipe, side by side."""
    return SimpleNamespace(**recipe(name).flat())


@pytest.mark.parametrize("name", list_recipes())
def test_recipe_builds_its_network(name: str) -> None:
    made = recipe(name)
    found = flat(name)
    data, _, method = re.sub("-(quick|paper|short|small)$", "", name).rpartition("-")
    assert (made.name, found.data) == (name, data)
    has_capsules = made.network.has_capsules
    assert has_capsules == (method != "cnn")
    channels, classes = 2 if found.camera == "both" else CHANNELS.get(data, 1), CLASSES.get(data, 10)
    split = Split(torch.zeros(classes, channels, 96, 96, dtype=torch.uint8), torch.arange(classes, dtype=torch.int64))
    splits = Splits(tuple(map(str, range(classes))), split, None, split, note="")
    pipeline = make_pipeline(made, splits)
    with torch.device("meta"):  # the structure only
        network = make_classifier(made, splits, pipeline).network
        options: dict[str, Any] = {"routing": method, "class_shared": found.class_shared} if has_capsules else {}
        options |= {"in_channels": channels, "num_classes": classes, "first_channels": found.first_channels}
        options |= {"norm": found.norm}
        wanted = create_model(found.model, **options)
    assert (network.in_channels, network.num_classes, network.image_size) == (channels, classes, found.size)
    assert network.parameter_count() == wanted.parameter_count()


@pytest.mark.parametrize("name", [name for name in list_recipes() if name.endswith("-paper")])
def test_papers_settings(name: str) -> None:
    found = flat(name)
    assert (found.epochs, found.batch_size, found.schedule) == (50, 50, "constant")
    assert (found.shift, found.flip, found.stretch, found.turn) == (0, False, 0, 0)
    assert (found.size, found.model[-2:]) == ((64, "64") if found.data in CLASSES else (32, "32"))
    if not name.endswith("-cnn-paper"):
        assert (found.loss, found.reconstruction) == ("spread", 0.0005)
        assert (found.routing, found.iterations, found.transform_std) == (name.split("-")[-2], 2, 0.1)
        assert found.conv_init == "paper"
    else:
        assert (found.loss, found.reconstruction) == ("cross-entropy", 0.0)


@pytest.mark.parametrize("data", ["smallnorb", "turntable"])
def test_toys_are_compared_with_all_else_equal(data: str) -> None:
    capsules, cnn = flat(f"{data}-frem"), flat(f"{data}-cnn")
    same = ("camera", "size", "resize", "norm", "loss", "rate", "schedule", "epochs", "batch_size", "standardise")
    assert all(getattr(capsules, name) == getattr(cnn, name) for name in same)
    assert (capsules.model, cnn.model, capsules.camera, capsules.norm) == ("headcaps32", "cnn32", "both", "batch")
    assert flat(f"{data}-frem-short").model == flat(f"{data}-frem-paper").model == "hybrid64"


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist", "cifar10"])
def test_single_images_are_compared_with_all_else_equal(data: str) -> None:
    capsules, cnn = recipe(f"{data}-frem").flat(), recipe(f"{data}-cnn").flat()
    differ = {name for name, value in capsules.items() if value != cnn[name]}
    assert differ == {"model", "reconstruction"}
    assert (capsules["model"], cnn["model"]) == ("headcaps32", "cnn32")
    assert recipe(f"{data}-frem").has_decoder
    assert flat(f"{data}-frem-short").model == flat(f"{data}-frem-paper").model == "hybrid32"


@pytest.mark.parametrize("name", [name for name in list_recipes() if name.endswith(("-small", "-quick"))])
def test_small_images(name: str) -> None:
    found, paper = flat(name), flat(re.sub("-(small|quick)$", "-paper", name))
    assert found.epochs < paper.epochs
    assert found.size == 32
    assert (found.data, found.routing, found.iterations) == (paper.data, paper.routing, paper.iterations)
    assert recipe(name).has_decoder == ("-cnn-" not in name)
    kind = "cnn32" if "-cnn-" in name else "hybrid32" if name.endswith("-small") else "headcaps32"
    assert found.model == kind
    assert found.loss == ("spread" if kind == "hybrid32" else "cross-entropy")


def test_what_happens_to_images_reaches_the_pipeline() -> None:
    wanted = {"brightness": 0.3, "contrast": 0.7, "shift": 2, "stretch": 0.15, "turn": 12.0, "flip": True}
    split = Split(torch.zeros(2, 1, 32, 32, dtype=torch.uint8), torch.arange(2))
    pipeline = make_pipeline(
        Recipe.of(data="mnist", **wanted, standardise="set"), Splits(("a", "b"), split, None, split)
    )
    assert {name: getattr(pipeline, name) for name in wanted} == wanted
    assert pipeline.standardise == "set"


def test_json_round_trip() -> None:
    start = recipe("cifar10-em", root=Path("somewhere"), routing_options={"final_lambda": 0.1}, brightness=0.25)
    assert recipe_from_json(json.loads(json.dumps(start.as_json()))) == start
    for name in list_recipes():
        assert recipe_from_json(json.loads(json.dumps(recipe(name).as_json()))) == recipe(name)


def test_unknown_names() -> None:
    for name in ("", "mnist", "mnist-frem-fast", "imagenet-frem", "frem-mnist"):
        with pytest.raises(OptionError, match="there is no recipe"):
            recipe(name)
    with pytest.raises(UserError, match="no field nonsense"):
        recipe("mnist-frem", nonsense=1)
    with pytest.raises(UserError, match="no field nonsense"):
        recipe_from_json({**Recipe().as_json(), "data": {"nonsense": 1}})


@pytest.mark.parametrize(
    "changes",
    [
        *({name: 0} for name in ("size", "epochs", "batch_size", "rate", "checkpoint_every", "routing_rate")),
        *({name: -1.0} for name in ("rate", "reconstruction", "weight_decay", "warm_up")),
        *({name: float("nan")} for name in ("rate", "reconstruction", "weight_decay", "warm_up")),
        *({name: "nonsense"} for name in ("loss", "schedule", "weights", "standardise", "validation")),
        *({name: None} for name in ("stretch", "epochs", "model", "flip", "routing_options", "name")),
        *({name: 2.5} for name in ("epochs", "seed", "fold", "images")),
        {"fields": [2, 2]},
        {"flip": 1},
        {"warm_up": 1.0},
        {"weights": "best", "validation": "none"},
    ],
    ids=str,
)
def test_wrong_values(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(changes))):
        Recipe.of(**changes)


def test_another_size_of_crops_scales_what_they_are_cut_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert recipe().images.resize == 36
    assert recipe(size=48).images.resize == 54
    assert recipe(size=48, resize=50).images.resize == 50
    assert recipe("mnist-frem", size=64).images.resize is None
    with pytest.raises(SystemExit):
        main(["train", "--size", "48", "--help"])
    assert re.search(r"cut\s.*default: 54\)", capsys.readouterr().out, re.DOTALL)


@pytest.mark.parametrize("text", ["[]", '{"recipe": null}', '{"recipe": []}', "{}", "7"])
def test_a_run_without_a_recipe(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match=r"run\.json cannot be used: it holds no recipe"):
        read_recipe(tmp_path)


def make_folder(root: Path, count: int, side: int) -> Path:
    for name in ("one", "two", "three"):
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (side, side + 3), number).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize(
    ("side", "size", "model"), [(20, 32, "headcaps32"), (63, 32, "headcaps32"), (64, 64, "headcaps64")]
)
def test_folder_picks_the_network(tmp_path: Path, side: int, size: int, model: str) -> None:
    found = folder_recipe(make_folder(tmp_path / "shapes", 2, side))
    assert (found.name, found.images.size, found.network.model) == ("shapes", size, model)
    assert found.data.data == str(tmp_path / "shapes")
    images = found.images
    assert (images.stretch, images.turn, images.flip, images.resize) == (0, 0, False, None)


def test_folder_of_large_images_has_room_for_its_crops(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("L", (80, 100)).save(tmp_path / name / "0.png")
    (tmp_path / "a" / "broken.png").write_bytes(b"\x89PNG")  # loading will name it
    found = folder_recipe(tmp_path)
    split = Split(torch.zeros(2, 1, 72, 72, dtype=torch.uint8), torch.arange(2))
    splits = Splits(("a", "b"), split, None, split)
    assert make_classifier(found, splits, make_pipeline(found, splits)).source_size == 72


def test_numbers_among_the_routing_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--routing-options", "bandwidth", "4", "kernel", "gaussian"]
    found = parsed("mnist-frem", *options, patch=monkeypatch)
    assert found.network.routing_options == {"bandwidth": 4.0, "kernel": "gaussian"}


def test_data_set_without_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed("--data", "mnist", patch=monkeypatch) == recipe("mnist-frem-quick")


def test_folder_picks_batch_and_epochs(tmp_path: Path) -> None:
    few, many = (folder_recipe(make_folder(tmp_path / str(count), count, 8)) for count in (3, 450))
    assert few.optimisation.batch_size <= 6  # of about six training images
    assert few.optimisation.epochs > many.optimisation.epochs
    assert many.optimisation.batch_size == 25
    assert 1200 < many.optimisation.epochs * 945 / 25 < 1800  # steps


def parsed(*arguments: str, patch: pytest.MonkeyPatch) -> Recipe:
    """The recipe that the command line makes of its arguments."""
    seen: list[Recipe] = []
    patch.setattr("torchcaps.train.run.train", lambda found, **options: seen.append(found))
    main(["train", *arguments])
    return seen[0]


def test_another_set_has_its_own_cameras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert parsed("turntable-frem-quick", "--data", "mnist", patch=monkeypatch).data.camera == "left"
    assert parsed("turntable-frem-quick", "--data", "smallnorb", patch=monkeypatch).data.camera == "both"
    assert parsed("turntable-frem-quick", "--data", str(tmp_path), patch=monkeypatch).data.camera == "left"
    typo = parsed("--data", "typo", patch=monkeypatch)
    with pytest.raises(OptionError, match=r"data is 'typo': expected one of .*, or a folder of images that exists"):
        load_data(typo)


def test_name_first_and_then_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(patch=monkeypatch) == recipe("turntable-frem-quick")
    assert parsed("mnist-em", patch=monkeypatch) == recipe("mnist-em")
    options = ["--epochs", "3", "--flip", "--root", "there", "--routing-options", "kernel", "gaussian"]
    assert parsed("smallnorb-frms", *options, patch=monkeypatch) == recipe(
        "smallnorb-frms", epochs=3, flip=True, root=Path("there"), routing_options={"kernel": "gaussian"}
    )


def test_data_folder_on_the_command_line(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = folder_recipe(str(images))
    assert parsed("--data", str(images), patch=monkeypatch) == wanted
    assert parsed(f"--data={images}", "--epochs", "3", patch=monkeypatch) == wanted.with_fields(epochs=3)
    named = parsed("mnist-em", "--data", str(images), patch=monkeypatch)
    assert named == recipe("mnist-em", data=str(images))


def test_help_explains_each_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # boxes stand side by side where there is room
    with pytest.raises(SystemExit) as exit_info:
        main(["train", "mnist-em", "--help"])
    assert exit_info.value.code == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()] + ["--"]
    starts = [number for number, line in enumerate(lines) if line.startswith("--")]
    for name in [*PART_OF, "name", "output", "resume", "devices", "nodes", "device", "precision"]:
        option = f"--{name.replace('_', '-')}"
        [place] = [number for number in starts if lines[number].startswith((f"{option} ", f"{option},"))]
        text = " ".join(lines[place : next(start for start in starts if start > place)])
        assert text.partition("(default: ")[0].rstrip().endswith("."), name  # a sentence
        assert "(default: " in text, name
    assert "(default: mnist-em)" in " ".join(lines)


@pytest.fixture
def begun(recipe: Recipe) -> Path:
    """The folder of a run that was interrupted."""
    with interrupted(2, "SIGTERM"):
        train(recipe, output=Path("run"))
    return Path("run")


def test_recipe_of_a_run(begun: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_recipe(begun) == recipe
    assert parsed("--resume", str(begun), patch=monkeypatch) == recipe


@pytest.mark.parametrize(
    ("extra", "named"),
    [(["--rate", "9"], "--rate"), (["--no-residual"], "--no-residual"), (["--output", "other"], "--output")],
)
def test_resume_with_other_fields(begun: Path, extra: list[str], named: str) -> None:
    with pytest.raises(OptionError, match=f"leave {named} out"):
        train_command(["--resume", str(begun), *extra])
    with pytest.raises(OptionError, match="leave mnist-em out"):
        train_command(["mnist-em", f"--resume={begun}"])


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"recipe": []}', '{"recipe": {"nonsense": 1}}', '{"recipe": {"epochs": "x"}}']
)
def test_resume_of_nonsense(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match=r"run\.json"):
        train_command(["--resume", str(tmp_path)])


def test_resume_of_what_is_not_there(tmp_path: Path, recipe: Recipe) -> None:
    with pytest.raises(UserError, match="not the folder of a training run"):
        train_command(["--resume", str(tmp_path / "nothing")])
    with pytest.raises(UserError, match="not the folder of a training run"):
        train(recipe, resume=tmp_path / "nothing")
