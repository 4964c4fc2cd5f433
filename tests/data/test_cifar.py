import gzip
import io
import tarfile
import tracemalloc

import pytest
import torch

from data_files import bomb, changed, cifar_archive, cifar_batch, cifar_contents, pixels, put
from torchcaps.data import cifar
from torchcaps.data.cifar import load_cifar10, read_batch
from torchcaps.data.types import DataError


def check(data):
    """Whether a set is the one of cifar_contents: batches of 3, 4, 5, 6, 7 and 8 records."""
    assert data.train.images.shape == (25, 3, 32, 32)
    assert data.test.images.shape == (8, 3, 32, 32)
    assert data.train.images.is_contiguous()
    assert data.test.images.is_contiguous()
    assert data.train.labels[:8].tolist() == [0, 1, 2, 0, 1, 2, 3, 0]
    assert torch.equal(data.train.images[3:7], torch.from_numpy(pixels(4, 3072)).view(4, 3, 32, 32))
    assert torch.equal(data.test.images, torch.from_numpy(pixels(8, 3072)).view(8, 3, 32, 32))


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("subfolder", ["", cifar.FOLDER])
def test_batches_from_the_folder_or_the_one_in_it(tmp_path, subfolder, gzipped):
    put(tmp_path / subfolder, cifar_contents(), gzipped)
    data = load_cifar10(tmp_path)
    check(data)
    assert data.classes[3] == "cat"


def test_batches_straight_from_the_archive(tmp_path):
    (tmp_path / cifar.ARCHIVE).write_bytes(cifar_archive(cifar_contents()))
    check(load_cifar10(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [cifar.ARCHIVE]


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_part_of_a_record(tmp_path, size, pack):
    path = tmp_path / "batch"
    path.write_bytes(pack(bytes(size)))
    with pytest.raises(DataError, match=f"byte {size - size % 3073}: {size} bytes are not a whole number of records"):
        read_batch(path)


def test_a_label_out_of_range_is_named_by_byte(tmp_path):
    contents = cifar_contents()
    contents["data_batch_4.bin"] = changed(contents["data_batch_4.bin"], 2 * 3073, b"\x0a")
    put(tmp_path / "plain", contents)
    with pytest.raises(DataError, match=r"data_batch_4.bin: byte 6146: label 10; expected 0 to 9"):
        load_cifar10(tmp_path / "plain")
    put(tmp_path / "packed", {cifar.ARCHIVE: cifar_archive(contents)})
    with pytest.raises(DataError, match=r"tar.gz: data_batch_4.bin: byte 6146: label 10"):
        load_cifar10(tmp_path / "packed")


def test_what_is_missing_is_named(tmp_path):
    contents = cifar_contents()
    del contents["data_batch_2.bin"]
    put(tmp_path / "plain", contents)
    with pytest.raises(DataError, match=r"no data_batch_2.bin or data_batch_2.bin.gz"):
        load_cifar10(tmp_path / "plain")
    put(tmp_path / "packed", {cifar.ARCHIVE: cifar_archive(contents)})
    with pytest.raises(DataError, match=r"no data_batch_2.bin in it"):
        load_cifar10(tmp_path / "packed")
    with pytest.raises(DataError, match=r"no data_batch_1.bin"):
        load_cifar10(tmp_path / "nowhere")


def archive_of(*members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_links_and_paths_out_of_the_archive_are_never_followed(tmp_path):
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    escape = tarfile.TarInfo("../../escaped.bin")
    escape.size = 4
    put(tmp_path / "in", {cifar.ARCHIVE: archive_of((link, b""), (escape, b"evil"))})
    with pytest.raises(DataError, match=r"no data_batch_1.bin, .* in it"):
        load_cifar10(tmp_path / "in")
    assert [path.name for path in tmp_path.rglob("*")] == ["in", cifar.ARCHIVE]


def test_a_batch_that_is_there_twice(tmp_path):
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size = 3073
    put(tmp_path, {cifar.ARCHIVE: archive_of((member, cifar_batch(1)), (member, cifar_batch(1)))})
    with pytest.raises(DataError, match=r"data_batch_1.bin is in it twice"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "something else"])
def test_a_member_that_claims_to_be_huge(tmp_path, name):
    member = tarfile.TarInfo(name)
    member.size = 3073 << 24
    put(tmp_path, {cifar.ARCHIVE: bomb(member.tobuf(), megabytes=320)})
    tracemalloc.start()
    with pytest.raises(DataError, match=r"can hold no more than|larger than all of CIFAR-10"):
        load_cifar10(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_gzipped_batch_that_never_ends(tmp_path):
    put(tmp_path, {"data_batch_1.bin": bomb(b"", megabytes=320)})
    with pytest.raises(DataError, match="larger than all of CIFAR-10"):
        read_batch(tmp_path / "data_batch_1.bin")


def test_what_is_no_archive(tmp_path):
    for content in (b"", b"<html>404</html>", gzip.compress(b"text"), cifar_archive(cifar_contents())[:-2000]):
        put(tmp_path, {cifar.ARCHIVE: content})
        with pytest.raises(DataError, match=cifar.ARCHIVE):
            load_cifar10(tmp_path)
