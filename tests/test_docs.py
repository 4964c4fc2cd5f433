"""The Python of the docs runs: block after block of a page, in one namespace. So do its commands, with small data."""

import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from run_folders import make_run
from torchcaps.cli import main

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/training.md", "docs/finetuning.md", "docs/comparing.md", "docs/explanations.md")
NOT_RUN = "<!-- not run -->"  # on the line before a block that a test cannot run: a large download, another machine
BLOCK = re.compile(rf"^(?P<mark>{NOT_RUN}\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


COMMAND = re.compile(r"^torchcaps .*", re.MULTILINE)  # on a line of its own: in a block
ALL_PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))


def blocks(text: str) -> list[str]:
    """The blocks that are run, each after as many empty lines as stand before it: errors then name the page's line."""
    found = [match for match in BLOCK.finditer(text) if not match["mark"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


def test_blocks() -> None:
    text = f"# A page\n```python\na = 1\n```\n\n{NOT_RUN}\n```python\nb\n```\n```\nc\n```\n\n```python\nd = a\n```\n"
    assert blocks(text) == ["\n\na = 1\n", "\n" * 14 + "d = a\n"]


def pictures(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images ``[N, 28, 28]`` that are bright above, or bright on the left; and which."""
    labels = np.arange(count) % 2
    images = np.random.default_rng(0).integers(0, 100, (count, 28, 28), dtype=np.uint8)
    images[labels == 0, :14] += 120
    images[labels == 1, :, :14] += 120
    return images, labels


@pytest.fixture
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCAPS_CACHE", str(tmp_path / "cache"))


def put_pictures(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """24 images as PNG in two classes, and as arrays."""
    images, labels = pictures(24)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = folder / ("above", "left")[label] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return images, labels


@pytest.mark.usefixtures("_empty_folder")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES)
def test_page(page: str) -> None:
    """A page may use arrays ``images`` and ``labels``, and a folder ``photos`` of 24 images in two classes."""
    images, labels = put_pictures(Path("photos"))
    namespace = {"images": images, "labels": labels, "__name__": "page"}
    for code in blocks((ROOT / page).read_text(encoding="utf-8")):
        exec(compile(code, page, "exec"), namespace)


# The commands.


def commands(page: str) -> list[list[str]]:
    """The words of each command of a page, without its comment."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [shlex.split(line, comments=True)[1:] for line in COMMAND.findall(text)]


@cache
def help_of(*command: str) -> str:
    """What --help prints."""
    from contextlib import redirect_stdout
    from io import StringIO

    output = StringIO()
    with redirect_stdout(output), pytest.raises(SystemExit):
        main([*command, "--help"])
    return output.getvalue()


@pytest.mark.parametrize("page", ALL_PAGES)
def test_options_of_commands(page: str) -> None:
    for command, *words in commands(page):
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        known = set(re.findall(r"--[a-z][a-z-]*", help_of(command)))
        assert options <= known, (command, options - known)


@pytest.mark.usefixtures("_empty_folder")
@pytest.mark.filterwarnings("default")
def test_commands_that_compare_runs(capsys: pytest.CaptureFixture[str]) -> None:
    photos = Path("path/to/images")
    put_pictures(photos)
    for number in (1, 2, 3):
        make_run(Path(f"runs/mine-{number}"), photos.resolve(), seed=number)
    found = [words for words in commands("docs/comparing.md") if "mnist" not in words]  # which is not at hand here
    assert {words[0] for words in found} == {"eval", "predict", "compare"}
    for words in found:
        main(words)
        assert capsys.readouterr().out
    assert all(Path(name).is_file() for name in ("results.csv", "predictions.csv", "compare.html"))


@pytest.mark.usefixtures("_empty_folder")
@pytest.mark.filterwarnings("default")
def test_commands_that_fine_tune(capsys: pytest.CaptureFixture[str]) -> None:
    put_pictures(Path("path/to/images"))
    found = [words for words in commands("docs/finetuning.md") if "--data" in words]
    assert len(found) == 2
    for words in found:
        main([*words, "--epochs", "1", "--batch-size", "4"])
        assert "test error: " in capsys.readouterr().out
