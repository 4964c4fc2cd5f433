"""The Python of the docs runs: block after block of a page, in one namespace."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/training.md", "docs/finetuning.md", "docs/comparing.md", "docs/explanations.md")
NOT_RUN = "<!-- not run -->"  # on the line before a block that a test cannot run: a large download, another machine
BLOCK = re.compile(rf"^(?P<mark>{NOT_RUN}\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


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


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", [page for page in PAGES if (ROOT / page).is_file()])
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may use arrays ``images`` and ``labels``, and a folder ``photos`` of 24 images in two classes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHCAPS_CACHE", str(tmp_path / "cache"))
    images, labels = pictures(24)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = tmp_path / "photos" / ("above", "left")[label] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    namespace = {"images": images, "labels": labels, "__name__": "page"}
    for code in blocks((ROOT / page).read_text(encoding="utf-8")):
        exec(compile(code, page, "exec"), namespace)
