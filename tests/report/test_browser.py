"""The page in a real browser: nothing to complain about, every figure there, and no wider than a phone."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from torchcaps.report import write_report
from torchcaps.report.capsules import CLASSES
from torchcaps.report.compare import write_comparison
from torchcaps.report.comparison import Compared, Comparison
from torchcaps.runs.run import read_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]

# A frame of the wanted width holds the page, since a window cannot be as narrow as a phone; the page tells it what
# it measures.
FRAME = """<!DOCTYPE html><iframe src="measured.html" style="width:{width}px;height:2000px;border:0"></iframe>
<pre></pre>
<script>addEventListener("message", e => document.querySelector("pre").textContent = e.data)</script>"""
MEASURE = """<script>addEventListener("load", () => {
  const size = e => { const box = e.getBoundingClientRect(); return [box.width, box.height, box.right] };
  parent.postMessage(JSON.stringify({
    width: document.documentElement.scrollWidth,
    figures: [...document.querySelectorAll("figure, svg, .dimension:not(.second)")].map(size),
    images: [...document.images].map(image => [...size(image), image.naturalWidth]),
    outside: [...document.querySelectorAll("body *")].filter(
      e => !e.closest(".scroll") && !e.closest("svg") && e.getBoundingClientRect().right > innerWidth + 0.5
    ).map(e => e.outerHTML.slice(0, 80)),
    bars: document.querySelectorAll(".bars li").length,
    barsHeight: (document.querySelector(".scroll.tall") || document.body).offsetHeight,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    background: getComputedStyle(document.body).backgroundColor,
  }), "*") })</script>"""


def browse(tmp_path: Path, page: Path, *options: str) -> tuple[str, str]:
    """What the browser prints, and what it says of the page."""
    assert CHROMIUM
    command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def measure(tmp_path: Path, page: Path, width: int, *options: str) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    page.with_name("measured.html").write_text(text.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(width=width))
    out, log = browse(tmp_path, frame, "--virtual-time-budget=10000", "--dump-dom", "--window-size=1400,2200", *options)
    assert "CONSOLE" not in log, log
    found = re.search(r"<pre>(.*?)</pre>", out, re.DOTALL)
    assert found, out
    return dict(json.loads(unescape(found[1])))


@pytest.fixture
def page(make_run: Callable[..., Any]) -> Path:
    classes = ("apple", "a name which is rather long", "Unbreakable" * 8, *(f"class {k}" for k in range(9)))
    run = make_run(classes=classes, images=60)
    return write_report(*run[:4])


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_everything_has_a_size_and_its_place(tmp_path: Path, page: Path, width: int) -> None:
    found = measure(tmp_path, page, width)
    assert found["outside"] == []
    assert found["width"] == width
    charts = 4 + 4  # figures, and the drawings in them; then the bars and matrix, and what the capsules show
    assert len(found["figures"]) == charts + 1 + 1 + CLASSES + 1 + 17 + 6
    assert all(w > 20 and h > 10 for w, h, _ in found["figures"])
    assert all(w > 20 and h > 20 and natural for w, h, _, natural in found["images"])


def test_dark(tmp_path: Path, page: Path) -> None:
    light = measure(tmp_path, page, 800, "--blink-settings=preferredColorScheme=1")
    dark = measure(tmp_path, page, 800, "--blink-settings=preferredColorScheme=0")
    assert (light["dark"], dark["dark"]) == (False, True)
    assert light["background"] != dark["background"]


def test_many_classes_fit_a_phone(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(classes=tuple(f"class {number}" for number in range(100)), images=120)
    found = measure(tmp_path, write_report(*run[:4]), 360)
    assert found["outside"] == []
    assert found["width"] == 360
    assert found["bars"] == 100
    assert 100 < found["barsHeight"] < 500  # they scroll


SEARCH = """<script>addEventListener("load", () => {
  const box = document.querySelector("#errors .searchable"), input = box.querySelector("input");
  const shown = () => [...box.querySelectorAll("li")].filter(row => row.offsetHeight).length;
  const found = [input.offsetHeight > 0, shown()];
  for (const words of ["class 7", "CLASS  42", "no such thing", ""]) {
    input.value = words;
    input.dispatchEvent(new Event("input"));
    found.push(shown());
    if (words.startsWith("no")) found.push(box.querySelector(".nothing").offsetHeight > 0);
  }
  document.body.innerHTML = "<pre>" + JSON.stringify(found) + "</pre>";
})</script>"""


@pytest.mark.parametrize("script", [True, False])
def test_classes_can_be_searched(tmp_path: Path, make_run: Callable[..., Any], script: bool) -> None:
    run = make_run(classes=tuple(f"class {number}" for number in range(100)), images=120)
    page = write_report(*run[:4])
    text = page.read_text(encoding="utf-8")
    if not script:
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    page.write_text(text.replace("</body>", SEARCH + "</body>"), encoding="utf-8")
    out, log = browse(tmp_path, page, "--virtual-time-budget=10000", "--dump-dom")
    assert "CONSOLE" not in log, log
    found = re.search(r"<pre>(.*?)</pre>", out, re.DOTALL)
    assert found, out
    with_seven = [number for number in range(100) if "7" in str(number)]
    expected = [True, 100, len(with_seven), 1, 0, True, 100] if script else [False, 100, 100, 100, 100, False, 100]
    assert json.loads(found[1]) == expected


@pytest.mark.parametrize("width", [360, 1280])
def test_a_comparison_fits(tmp_path: Path, make_run: Callable[..., Any], width: int) -> None:
    found = make_run(classes=("apple", "Unbreakable" * 8, "cat"), images=60)
    other = replace(found.evaluation, activation=found.evaluation.activation.roll(1, 1))
    pair = zip(("Unbreakable" * 9, "another"), (found.evaluation, other), strict=True)
    runs = [Compared(name, read_run(found.folder), 1000, evaluation) for name, evaluation in pair]
    page = write_comparison(Comparison(runs, "fruit", "test", found.test), tmp_path / "compare.html")
    measured = measure(tmp_path, page, width)
    assert measured["outside"] == []
    assert measured["width"] == width
    assert len(measured["images"]) > 20
    assert all(w > 20 and h > 20 and natural for w, h, _, natural in measured["images"])


def test_a_screenshot_without_complaints(tmp_path: Path, page: Path) -> None:
    picture = tmp_path / "page.png"
    _, log = browse(tmp_path, page, f"--screenshot={picture}", "--window-size=1200,3000")
    assert "CONSOLE" not in log, log
    with Image.open(picture) as image:
        assert image.size == (1200, 3000)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 200  # pictures, not an empty page
