import shutil
import sys
from pathlib import Path

import pytest

from data_files import cifar_archive, cifar_contents, idx_contents, norb_contents, put
from torchcaps.data import cifar
from torchcaps.data.locate import VARIABLE, cache_folder, candidates, download_folder, find_folder
from torchcaps.data.sources import CIFAR10, FASHION_MNIST, MNIST, SOURCES
from torchcaps.data.types import DataError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of the machine's own is found."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_root_is_the_sets_own_folder_or_a_folder_of_sets(tmp_path):
    own = put(tmp_path / "sets" / "mnist", idx_contents())
    assert find_folder("mnist", tmp_path / "sets") == own
    assert find_folder("mnist", own) == own


def test_in_a_folder_of_sets_the_name_decides(tmp_path):
    put(tmp_path, idx_contents())
    fashion = put(tmp_path / "fashion-mnist", idx_contents())
    assert find_folder("mnist", tmp_path) == tmp_path
    assert find_folder("fashion-mnist", tmp_path) == fashion


def test_the_order_of_places(tmp_path, monkeypatch):
    cached = put(tmp_path / "cache" / "torchcaps" / "mnist", idx_contents())
    assert find_folder("mnist") == cached
    named = put(tmp_path / "named" / "mnist", idx_contents())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "named"))
    assert find_folder("mnist") == named
    given = put(tmp_path / "given", idx_contents())
    assert find_folder("mnist", given) == given
    shutil.rmtree(named)
    assert find_folder("mnist") == cached


def test_debians_folder_is_the_last_place_for_fashion_mnist():
    debian = Path("/usr/share/datasets/fashion-mnist")
    assert candidates(FASHION_MNIST)[-1] == debian
    assert debian not in candidates(MNIST)


def test_a_root_without_the_set_lists_places_and_files_and_looks_nowhere_else(tmp_path):
    put(tmp_path / "cache" / "torchcaps" / "smallnorb", norb_contents())
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(DataError) as error:
        find_folder("smallnorb", root)
    message = str(error.value)
    assert f"{root / 'smallnorb'}: no such folder" in message
    assert f"{root}: none of its files" in message
    assert f"torchcaps data fetch smallnorb --root {root}" in message
    assert "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz  md5 66054832f9accfe74a0f4c36a75bc0a2" in message
    assert "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/" in message


def test_what_a_place_lacks_is_listed(tmp_path):
    folder = put(tmp_path / "mnist", idx_contents())
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=f"{folder}: lacks t10k-labels-idx1-ubyte\n"):
        find_folder("mnist", tmp_path)


def test_the_info_files_are_optional(tmp_path):
    folder = put(tmp_path, {name: content for name, content in norb_contents().items() if "info" not in name})
    assert find_folder("smallnorb", folder) == folder


def test_cifar_as_an_archive_or_unpacked(tmp_path):
    packed = put(tmp_path / "packed", {cifar.ARCHIVE: cifar_archive(cifar_contents())})
    put(tmp_path / "unpacked" / cifar.FOLDER, cifar_contents())
    assert find_folder("cifar10", packed) == packed
    assert find_folder("cifar10", tmp_path / "unpacked") == tmp_path / "unpacked"
    inner = tmp_path / "unpacked" / cifar.FOLDER
    assert find_folder("cifar10", inner) == inner
    for folder in (packed, tmp_path / "unpacked", inner):
        assert len(CIFAR10.load(folder).train) == 25


def test_downloads_go_to_the_sets_own_folder(tmp_path, monkeypatch):
    assert download_folder(MNIST) == tmp_path / "cache" / "torchcaps" / "mnist"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "named"))
    assert download_folder(MNIST) == tmp_path / "named" / "mnist"
    assert download_folder(MNIST, tmp_path / "x") == tmp_path / "x" / "mnist"
    assert download_folder(MNIST, tmp_path / "mnist") == tmp_path / "mnist"
    some = put(tmp_path / "some", {"t10k-labels-idx1-ubyte": b""})
    assert download_folder(MNIST, some) == some


def test_the_cache_folder_needs_no_downloader(monkeypatch):
    with_pooch = cache_folder()
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert cache_folder() == with_pooch


def test_an_unknown_set():
    with pytest.raises(
        DataError, match="no published set 'imagenet'; there are mnist, fashion-mnist, cifar10, smallnorb"
    ):
        find_folder("imagenet")


def test_the_registry_agrees_with_itself():
    for name, source in SOURCES.items():
        assert source.name == name
        assert {file for download in source.downloads for file in download.files} == {f.name for f in source.files}
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in source.mirrors)
        sums = [one.md5 for one in (*source.downloads, *source.files)]
        assert all(md5 is None or (len(md5) == 32 and int(md5, 16)) for md5 in sums)
