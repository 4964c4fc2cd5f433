"""Whatever the bytes are: a set, or our error; never another one, a hang, or memory without end."""

import gzip
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_files import (
    bomb,
    changed,
    cifar_archive,
    cifar_batch,
    idx_images,
    idx_labels,
    norb_categories,
    norb_info,
    norb_pairs,
)
from torchcaps.data import cifar
from torchcaps.data.cifar import check_cifar_file
from torchcaps.data.idx import check_idx_file
from torchcaps.data.norb import CAMERAS, check_norb_file, read_pairs
from torchcaps.data.types import DataError

SMALL_ARCHIVE = gzip.decompress(cifar_archive({name: cifar_batch(1) for name in (*cifar.TRAIN, cifar.TEST)}))
FORMATS = {
    "idx images": (check_idx_file, "images", idx_images(2)),
    "idx labels": (check_idx_file, "labels", idx_labels(9)),
    "cifar batch": (check_cifar_file, "batch", cifar_batch(2)),
    "cifar archive": (check_cifar_file, cifar.ARCHIVE, SMALL_ARCHIVE),
    "norb pairs": (check_norb_file, "-dat", norb_pairs(2)),
    "norb mapped": (lambda _, path: read_pairs(path, CAMERAS["both"], 2), "-dat", norb_pairs(2)),
    "norb categories": (check_norb_file, "-cat", norb_categories(6)),
    "norb info": (check_norb_file, "-info", norb_info(6)),
}
MEMORY = 4 << 20


@st.composite
def spoilt(draw, content):
    """Content with some damage: cut, flipped, with large numbers in its header, or with something after it."""
    for _ in range(draw(st.integers(0, 3))):
        # Damage in the first bytes, where the header is, finds more than damage in the pixels.
        place = draw(st.one_of(st.integers(0, min(40, len(content))), st.integers(0, len(content))))
        kind = draw(st.sampled_from(["cut", "flip", "number", "append", "insert"]))
        if kind == "cut":
            content = content[:place]
        elif kind == "flip" and place < len(content):
            content = changed(content, place, bytes([content[place] ^ (1 << draw(st.integers(0, 7)))]))
        elif kind == "number":
            value = draw(st.sampled_from([0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]))
            order = draw(st.sampled_from(["little", "big"]))
            content = changed(content, 4 * (place // 4), value.to_bytes(4, order))
        elif kind == "append":
            content += draw(st.binary(max_size=2000))
        elif kind == "insert":
            content = content[:place] + draw(st.binary(max_size=20)) + content[place:]
    return content


def survives(check, name, content):
    """The check passes or gives our error, and takes little memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        tracemalloc.start()
        try:
            check(name, path)
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017 - passing is fine too
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < MEMORY


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150, deadline=5000)
@given(data=st.data())
def test_spoilt_content(format, data):
    check, name, content = FORMATS[format]
    content = data.draw(spoilt(content))
    survives(check, name, gzip.compress(content, 1) if data.draw(st.booleans()) else content)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=50, deadline=5000)
@given(data=st.data())
def test_spoilt_gzip(format, data):
    check, name, content = FORMATS[format]
    survives(check, name, data.draw(spoilt(gzip.compress(content, 1))))


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=50, deadline=5000)
@given(content=st.binary(max_size=600))
def test_anything(format, content):
    check, name, _ = FORMATS[format]
    survives(check, name, content)


@pytest.mark.parametrize("format", [name for name in FORMATS if not name.startswith("cifar")])
@pytest.mark.parametrize("inflate_header", [False, True])
def test_bombs(format, inflate_header):
    check, name, content = FORMATS[format]
    if inflate_header:  # the first dimension: the content could be that long, but is not ours to hold
        order = "big" if format.startswith("idx") else "little"
        content = changed(content, 4 if order == "big" else 8, (2**31 - 1).to_bytes(4, order))
    survives(check, name, bomb(content, megabytes=1024))
