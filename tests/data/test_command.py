"""Sets by name, and `torchcaps data`, on small files in the official formats."""

from pathlib import Path

import pytest
from PIL import Image

from data_files import cifar_contents, idx_contents, norb_contents, put
from torchcaps import data
from torchcaps.cli import main
from torchcaps.data import catalog


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "300")  # so that rich does not fold the tables
    put(tmp_path / "mnist", idx_contents())
    put(tmp_path / "smallnorb", norb_contents())
    put(tmp_path / "cifar10", cifar_contents())
    return tmp_path


@pytest.fixture
def tiny_turntable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "DEFAULT_PAIRS", 5)


def test_load_by_name(root: Path) -> None:
    assert data.load("mnist", root=root).train.images.shape == (7, 1, 28, 28)
    assert data.load("cifar10", root=str(root)).train.images.shape[1:] == (3, 32, 32)
    assert data.load("smallnorb", root=root / "smallnorb", camera="both").test.images.shape == (3, 2, 96, 96)


@pytest.mark.parametrize(
    ("name", "camera", "message"),
    [
        ("minst", "left", r"'minst': expected one of mnist, .*turntable; load_folder"),
        ("mnist", "right", "mnist has one camera only"),
        ("fashion-mnist", "left", "none of these"),
    ],
)
def test_load_errors(root: Path, name: str, camera: str, message: str) -> None:
    with pytest.raises(data.DataError, match=message):
        data.load(name, root=root, camera=camera)


def test_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "list", "--root", str(root)])
    shown = capsys.readouterr().out
    assert all(name in shown for name in data.list_sets())
    assert str(root / "mnist") in shown
    assert "not found" in shown  # fashion-mnist


def test_what_is_ignored_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "photos").mkdir()
    for arguments, message in {
        ("list", "mnist"): "list lists all sets: leave mnist out",
        ("show", str(root / "photos"), "--root", str(root)): "--root does nothing here, leave it out",
    }.items():
        with pytest.raises(SystemExit):
            main(["data", *arguments])
        assert message in " ".join(capsys.readouterr().err.split())


def test_verify_and_fetch_of_what_is_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "verify", "mnist", "--root", str(root)])
    assert "differs from the official file" in capsys.readouterr().out
    main(["data", "fetch", "mnist", "--root", str(root)])
    assert f"mnist is in {root / 'mnist'}" in capsys.readouterr().out


@pytest.mark.usefixtures("tiny_turntable")
def test_show_and_export_turntable(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "fetch", "turntable", "--root", str(root / "pictures")])
    main(["data", "show", "turntable", "--root", str(root / "pictures"), "--output", str(root / "sheet.png")])
    assert (root / "sheet.png").read_bytes().startswith(b"\x89PNG")
    main(["data", "export", "turntable", "--root", str(root / "pictures"), "--output", str(root / "as-norb")])
    assert "5 + 5 stereo pairs" in capsys.readouterr().out
    assert len(data.load("smallnorb", root=root / "as-norb").test) == 5


def test_a_damaged_file_fails_the_verification(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "mnist" / "train-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SystemExit) as stop:
        main(["data", "verify", "mnist", "--root", str(root)])
    assert stop.value.code == 1
    assert "damaged" in capsys.readouterr().out


def test_show_a_folder_of_images(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchcaps.data.folder._default_cache", lambda: root / "cache")
    for name, shade in (("dark", 20), ("light", 220)):
        (root / "own" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (40, 30), shade + number).save(root / "own" / name / f"{number}.png")
    (root / "own" / "dark" / "broken.png").write_bytes(b"not a picture")
    call = ["data", "show", str(root / "own"), "--output", str(root / "own.png")]
    with pytest.raises(SystemExit):
        main(call)
    assert "broken.png" in capsys.readouterr().err
    main([*call, "--skip-bad"])
    assert "1 of 9 files skipped as unusable" in capsys.readouterr().out.replace("\n", " ")
    assert (root / "own.png").is_file()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["show", "fashion-mnist"], "none of these"),
        (["show"], "needs a name"),
        (["show", "minst"], "'minst': expected one of"),
        (["verify", "turntable"], "no official files"),
        (["export", "mnist"], "not mnist"),
        (["export", "turntable"], "needs --output"),
        (["show", "mnist", "--full"], "--full does nothing here"),
        (["fetch", "mnist", "--output", "x"], "--output does nothing here"),
        (["show", "mnist", "--skip-bad"], "--skip-bad does nothing here"),
    ],
)
def test_errors_are_one_message_and_code_2(
    root: Path, call: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", *call, "--root", str(root)])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    with pytest.raises(data.DataError):
        main(["data", *call, "--root", str(root), "--debug"])
