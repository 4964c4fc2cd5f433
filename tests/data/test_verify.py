import pytest

from data_files import (
    changed,
    cifar_archive,
    cifar_contents,
    idx_contents,
    idx_labels,
    norb_contents,
    put,
    small_source,
)
from torchcaps.data import cifar
from torchcaps.data.locate import DIFFERS, MISSING, OFFICIAL, TOGETHER, unofficial, verify
from torchcaps.data.sources import CIFAR10, MNIST, SMALLNORB, SOURCES
from torchcaps.data.types import DataError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Registries for which the tests' small files are the official ones."""
    for original, contents in ((MNIST, idx_contents()), (CIFAR10, cifar_contents()), (SMALLNORB, norb_contents())):
        monkeypatch.setitem(SOURCES, original.name, small_source(original, contents)[0])


@pytest.mark.parametrize("gzipped", [False, True])
def test_official_files_match_whoever_compressed_them(tmp_path, gzipped):
    for name, contents in (("mnist", idx_contents()), ("cifar10", cifar_contents()), ("smallnorb", norb_contents())):
        put(tmp_path / name, contents, gzipped)
        rows = verify(name, tmp_path)
        assert len(rows) == len(contents)
        assert {status for _, status in rows} == {OFFICIAL}


def test_each_way_to_be_wrong(tmp_path):
    contents = idx_contents()
    del contents["train-labels-idx1-ubyte"]
    contents["train-images-idx3-ubyte"] = changed(contents["train-images-idx3-ubyte"], 100, b"new")
    contents["t10k-labels-idx1-ubyte"] = contents["t10k-labels-idx1-ubyte"][:-1]
    rows = dict(verify("mnist", put(tmp_path, contents)))
    assert rows["train-images-idx3-ubyte"] == DIFFERS
    assert rows["train-labels-idx1-ubyte"] == MISSING
    assert rows["t10k-images-idx3-ubyte"] == OFFICIAL
    damage = f"damaged: {tmp_path / 't10k-labels-idx1-ubyte'}: byte 10: the file ends here"
    assert rows["t10k-labels-idx1-ubyte"].startswith(damage)


def test_what_is_not_official(tmp_path):
    for name, contents, end, new in (("mnist", idx_contents(), 1, b"\0"), ("smallnorb", norb_contents(), 4, b"\4")):
        put(tmp_path / "official" / name, contents)
        assert unofficial(name, tmp_path / "official") == ((), "")
        put(tmp_path / "copy" / name, {file: changed(data, len(data) - end, new) for file, data in contents.items()})
    assert unofficial("turntable") == ((), "")
    files, note = unofficial("mnist", tmp_path / "copy")
    assert (set(files), note) == (set(idx_contents()), "not the official files")
    files, note = unofficial("smallnorb", tmp_path / "copy")
    assert set(files) == {file for file in norb_contents() if "-info" not in file}  # which no error depends on
    assert note == "JPEG copy"


def test_files_that_do_not_belong_together(tmp_path):
    put(tmp_path, {**idx_contents(train=7), "train-labels-idx1-ubyte": idx_labels(6)})
    name, status = verify("mnist", tmp_path)[-1]
    assert name == TOGETHER
    assert "7 images, but the file of labels beside it has 6" in status


def test_an_optional_file_may_be_missing(tmp_path):
    put(tmp_path, {name: content for name, content in norb_contents().items() if "training-info" not in name})
    assert [status for _, status in verify("smallnorb", tmp_path)].count("missing (optional)") == 1


def test_an_archive_is_compared_as_it_is(tmp_path, monkeypatch):
    content = cifar_archive(cifar_contents())
    source, served = small_source(CIFAR10, cifar_contents())
    monkeypatch.setitem(SOURCES, "cifar10", source)
    put(tmp_path, served)
    assert verify("cifar10", tmp_path) == [(cifar.ARCHIVE, OFFICIAL)]
    put(tmp_path, {cifar.ARCHIVE: cifar_archive(cifar_contents(2))})
    assert verify("cifar10", tmp_path) == [(cifar.ARCHIVE, DIFFERS)]
    put(tmp_path, {cifar.ARCHIVE: content[:-100]})
    assert verify("cifar10", tmp_path)[0][1].startswith("damaged: ")


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="MNIST is in none of these"):
        verify("mnist", tmp_path)
