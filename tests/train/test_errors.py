"""What a user can get wrong: one sentence, exit code 2, no traceback."""

import importlib.util
import os
import shutil
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves

import torchcaps
from torchcaps.cli import main
from torchcaps.errors import UserError
from torchcaps.runs.folder import RunFolderError, create
from torchcaps.runs.metrics import read_rows
from torchcaps.train import Recipe, train
from torchcaps.train.checkpoints import read_checkpoint
from train.tiny_runs import interrupted, tiny, tiny_fields

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def complaint(capsys: Capture, *arguments: str | Path) -> str:
    """What the command says against its arguments, in one line; with --debug the same as an exception."""
    call = ["train", *map(str, arguments)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(call)
    assert exit_info.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("torchcaps: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    with pytest.raises(UserError) as caught:
        main([*call, "--debug"])
    assert err == f"torchcaps: {caught.value}\n"
    return err


def check_nothing_was_made() -> None:
    """A call that cannot be meant leaves no run folder: the next one may have the same --output."""
    assert not Path("run").exists()
    assert not Path("runs").exists()


def image_folder(*classes: str, count: int = 4) -> Path:
    root = Path("pictures")
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (18, 18), 10 * number).save(root / name / f"{number}.png")
    return root


def test_missing_recipe(capsys: Capture) -> None:
    err = complaint(capsys, "imagenet-frem")
    assert "there is no recipe 'imagenet-frem'" in err
    assert "turntable" in err
    assert "--data FOLDER" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--nonsense", "3"], "--nonsense"), (["--epochs", "three"], "--epochs"), (["--loss", "nonsense"], "--loss")],
)
def test_unknown_field_or_value(capsys: Capture, arguments: list[str], named: str) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["train", *arguments])
    assert exit_info.value.code == 2
    err = capsys.readouterr().err
    assert named in err
    assert "Traceback" not in err
    check_nothing_was_made()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "cnn32", "--reconstruction", "0", "--routing", "em"], "routing em has no effect: cnn32 has no"),
        (["mnist-cnn", "--iterations", "3"], "iterations 3 has no effect: cnn32 has no capsules"),
        (["--unmixed", "0.25"], "unmixed 0.25 has no effect: mixup and cutmix are 0"),
        (["--validation", "none", "--fold", "2"], "fold 2 has no effect: validation is none"),
        (["mnist-frem-paper", "--warm-up", "0.1"], "warm_up 0.1 has no effect: the schedule is constant"),
    ],
)
def test_option_without_effect(capsys: Capture, arguments: list[str], words: str) -> None:
    assert words in complaint(capsys, *arguments)
    check_nothing_was_made()


def test_option_without_effect_that_the_recipe_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.train.run.train", lambda *_, **__: None)
    main(["train", "--model", "cnn32", "--reconstruction", "0"])  # the recipe's own routing is of no use to it
    main(["train", "smallnorb-frem", "--cutmix", "0"])  # nor are its unmixed epochs
    main(["train", "smallnorb-frem", "--cutmix", "0", "--unmixed", "0"])


def test_one_class(capsys: Capture) -> None:
    assert "one class only, 'cats'" in complaint(capsys, "--data", image_folder("cats"))


def test_empty_folder(capsys: Capture) -> None:
    Path("pictures").mkdir()
    assert "pictures has no subfolders; expected one subfolder per class" in complaint(capsys, "--data", "pictures")


def test_no_folder(capsys: Capture) -> None:
    err = complaint(capsys, "--data", "pictures")
    assert "data is 'pictures'" in err
    assert "or a folder of images" in err


def test_classes_that_differ_between_splits(capsys: Capture) -> None:
    root = image_folder("train/cats", "train/dogs", "test/cats", "test/birds")
    err = complaint(capsys, "--data", root)
    assert "missing dogs; not in train/: birds" in err


def test_image_that_cannot_be_read(capsys: Capture) -> None:
    root = image_folder("cats", "dogs")
    (root / "cats/0.png").write_bytes(b"no image")
    with pytest.raises(SystemExit) as exit_info:
        main(["train", "--data", str(root)])
    assert exit_info.value.code == 2
    err = capsys.readouterr().err
    assert "cats/0.png" in err
    assert "--skip-bad" in err
    check_nothing_was_made()


@pytest.fixture
def begun(recipe: Recipe) -> Path:
    with interrupted(2, "SIGTERM"):
        train(recipe, output=Path("begun"))
    return Path("begun")


def test_checkpoint_of_another_network(capsys: Capture, begun: Path, recipe: Recipe) -> None:
    with interrupted(1, "SIGTERM"):
        train(recipe.with_fields(first_channels=32), output=Path("other"))
    shutil.copy("other/checkpoints/last.ckpt", begun / "checkpoints")
    err = complaint(capsys, "--resume", begun)
    assert "last.ckpt does not match the recipe's network" in err
    assert "primary.pose.weight has shape [32, 1, 5, 5]" in err


@pytest.mark.parametrize("kept", [0, 10, 5000, -1])
def test_truncated_checkpoint(capsys: Capture, begun: Path, kept: int) -> None:
    path = begun / "checkpoints/last.ckpt"
    path.write_bytes(path.read_bytes()[:kept])
    assert "last.ckpt is damaged" in complaint(capsys, "--resume", begun)


@pytest.fixture(scope="module")
def checkpoint(images: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real checkpoint, as bytes."""
    folder = tmp_path_factory.mktemp("checkpoint")
    with interrupted(2, "SIGTERM"):
        train(tiny(images).with_fields(reconstruction=0.0), output=folder / "run")
    return (folder / "run/checkpoints/last.ckpt").read_bytes()


def test_damaged_checkpoint(checkpoint: bytes, tmp_path: Path) -> None:
    """Bytes changed or cut off: an error of ours, or where nothing depends on them the same values."""
    path, size = tmp_path / "last.ckpt", len(checkpoint)
    expected = torch.load(BytesIO(checkpoint), weights_only=True)
    refused, random = 0, Random(0)
    for number in range(400):
        # The pickle at the start and the directory at the end are where readers stumble in all ways.
        place = random.choice([random.randrange(size), random.randrange(4000), size - random.randrange(1, 4000)])
        damage = random.randbytes(random.randrange(1, 9))
        rest = b"" if number % 4 == 0 else damage + checkpoint[place + len(damage) :]
        path.write_bytes(checkpoint[:place] + rest)
        try:
            found = read_checkpoint(path)
        except RunFolderError:
            refused += 1
        else:
            assert all(
                torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
                for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True)
            )
    assert refused > 200


@pytest.mark.parametrize("damage", [b"\xff", b"\0", b"\n", b",", b"x" * 200_000])
def test_garbage_in_the_metrics(begun: Path, recipe: Recipe, damage: bytes) -> None:
    """Rows that cannot be read are left out; the run goes on."""
    path = begun / "metrics.csv"
    good = "10,1,1,1,1,,1,1,,1,,"
    head = path.read_text().splitlines()[0]
    path.write_bytes(
        f"{head}\n{good}\n".encode() + b"11,1,1" + damage + b"\xfe,1,1,,1,1,,1,,\n" + good.encode() + b"\n"
    )
    assert len(read_rows(path)) == 2
    finished = train(recipe, resume=begun)
    assert finished is not None
    assert [row["step"] for row in read_rows(path)][-1] == 12


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "../../escape", "a/b", "a\\b", "/tmp/x", "a\0b", "a\nb"])
def test_names_that_are_no_folder(name: str) -> None:
    with pytest.raises(RunFolderError, match="expected one without slashes, control characters or a leading dot"):
        create(name, None)
    assert not list(Path().iterdir())


def test_a_name_on_the_command_line(capsys: Capture, images: Path) -> None:
    assert "name is '../../escape', expected" in complaint(capsys, *tiny_fields(images), "--name", "../../escape")
    assert "name is '', expected" in complaint(capsys, *tiny_fields(images), "--name", "")
    check_nothing_was_made()


def test_checkpoint_that_would_run_code(capsys: Capture, begun: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, ("caught",)

    torch.save({"state_dict": {}, "global_step": Trap(), "loops": {}}, begun / "checkpoints/last.ckpt")
    assert "last.ckpt is damaged" in complaint(capsys, "--resume", begun)
    assert not Path("caught").exists()


def test_checkpoint_of_something_else(capsys: Capture, begun: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, begun / "checkpoints/last.ckpt")
    assert "last.ckpt is not a checkpoint of a training run" in complaint(capsys, "--resume", begun)


def test_output_that_is_not_empty(capsys: Capture, images: Path) -> None:
    Path("run").mkdir()
    Path("run/thesis.txt").write_text("mine")
    err = complaint(capsys, *tiny_fields(images), "--output", "run")
    assert "run exists and is not empty" in err
    assert "--resume run" in err
    assert [path.name for path in Path("run").iterdir()] == ["thesis.txt"]


def test_output_in_which_a_run_was_killed_before_it_began() -> None:
    Path("run").mkdir()
    Path("run/.lock").touch()
    Path("run/.run.json.1a2b3c4d.part").touch()
    assert create("tiny", Path("run")) == Path("run")


@pytest.mark.parametrize("output", ["file", "file/run"])
def test_output_at_or_below_a_file(capsys: Capture, images: Path, output: str) -> None:
    Path("file").write_text("mine")
    assert f"{output} cannot be written" in complaint(capsys, *tiny_fields(images), "--output", output)
    assert Path("file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(capsys: Capture, images: Path) -> None:
    Path("closed").mkdir(mode=0o500)
    err = complaint(capsys, *tiny_fields(images), "--output", "closed/run")
    assert "closed/run cannot be written: Permission denied" in err


@pytest.mark.parametrize("missing", ["lightning", "safetensors", "tensorboard"])
def test_missing_package(capsys: Capture, images: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr("torchcaps.train.run.find_spec", lambda name: None if name == missing else original(name))
    err = complaint(capsys, *tiny_fields(images))
    assert err == f"torchcaps: training needs {missing}: pip install 'torchcaps[train]'\n"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch-size": 99}, "batch_size is 99, but there are 34 training images"),
        ({"size": 20}, "image_size=20: expected a multiple of 8"),
        ({"routing": "nonsense"}, "routing is 'nonsense', expected one of agreement, em, frem"),
        ({"model": "nonsense"}, "model is 'nonsense', expected one of cnn32"),
        ({"model": "hybrid32", "first-channels": 17}, "first_channels=17: expected a multiple of 16"),
        ({"iterations": 0}, "iterations=0: expected"),
        ({"rate": -1}, "rate is -1.0, expected more than 0"),
        ({"camera": "right"}, "camera are for data sets"),
        ({"shift": -1}, "shift -1: expected none below 0"),
    ],
    ids=str,
)
def test_recipe_that_cannot_be_followed(capsys: Capture, images: Path, changes: dict[str, Any], words: str) -> None:
    assert words in complaint(capsys, *tiny_fields(images, **changes), "--output", "run")
    check_nothing_was_made()


def test_routing_option_that_does_not_exist(capsys: Capture, images: Path) -> None:
    for name in ("nonsense", "transform_std", "iterations", "device"):  # options of the network are not the method's
        err = complaint(capsys, *tiny_fields(images), "--routing-options", name, "1")
        assert f"routing_options has '{name}', frem has activation_bandwidth, activation_kernel, bandwidth" in err
    err = complaint(capsys, *tiny_fields(images), "--routing", "em", "--routing-options", "kernel", "gaussian")
    assert "routing_options has 'kernel', em has final_lambda" in err
    check_nothing_was_made()


def test_nodes_that_nothing_has_started(capsys: Capture, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_NTASKS", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert "nodes is 2, but nothing has started processes" in complaint(capsys, *tiny_fields(images), "--nodes", "2")
    check_nothing_was_made()


def test_paths_as_text(images: Path) -> None:
    finished = train(Recipe.of(data=str(images), size=16, first_channels=16, epochs=1, batch_size=8), output="text")
    assert finished is not None
    assert finished.folder == Path("text")
    with pytest.raises(UserError, match=r"recipe is 'mnist-frem', expected a recipe, as in train\(recipe\("):
        train("mnist-frem")  # type: ignore[arg-type]


def test_nothing_held_out_of_a_folder(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Recipe] = []
    monkeypatch.setattr("torchcaps.train.run.train", lambda recipe, **_: seen.append(recipe))
    main(["train", "--data", str(images), "--validation", "none"])
    assert (seen[0].data.validation, seen[0].optimisation.weights) == ("none", "last")


def test_fields_without_effect_in_python(images: Path) -> None:
    with pytest.raises(UserError, match="routing em has no effect: cnn32 has no capsules; leave it out"):
        torchcaps.fit(images, model="cnn32", routing="em", progress=False)


def test_loss_that_is_not_finite_is_the_users_to_mend(capsys: Capture, images: Path) -> None:
    arguments = ["train", *tiny_fields(images, rate=1e30, schedule="constant"), "--output", "run"]
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("torchcaps: the output loss is nan at step 2 (epoch 1, batch 2): ")
    assert err.count("\n") == 1
