import gzip
import os
import tracemalloc

import pytest

from data_files import bomb
from torchcaps.data.reading import Reader, content_md5, find_file, spellings
from torchcaps.data.types import DataError


@pytest.fixture(params=["plain", "gzipped"])
def file(request, tmp_path):
    def write(content):
        path = tmp_path / "file"
        path.write_bytes(content if request.param == "plain" else gzip.compress(content))
        return path

    return write


def test_content_is_the_same_gzipped_or_not_whatever_the_name(file):
    with Reader(file(b"headerdata")) as reader:
        assert reader.exactly(6, "the header") == b"header"
        assert reader.rest(4, "the data") == b"data"


def test_trailing_bytes_are_named_by_their_offset(file):
    path = file(b"headerdata and more")
    with Reader(path) as reader, pytest.raises(DataError, match=rf"{path}: byte 10\b"):
        reader.rest(10, "the data")


def test_a_file_that_is_cut_short_is_named_by_its_end(file):
    path = file(b"header")
    with Reader(path) as reader, pytest.raises(DataError, match=rf"{path}: byte 6\b.*byte 10"):
        reader.rest(10, "the data")


@pytest.mark.parametrize("kept", [5, 15, 30, -8, -1])
def test_a_cut_gzip_stream_is_damaged(tmp_path, kept):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(bytes(range(200)))[:kept])
    with Reader(path) as reader, pytest.raises(DataError, match="damaged or cut short"):
        reader.rest(200, "the data")


def test_the_gzip_checksum_is_checked(tmp_path):
    path = tmp_path / "file"
    content = bytearray(gzip.compress(b"data"))
    content[-8] ^= 1
    path.write_bytes(content)
    with Reader(path) as reader, pytest.raises(DataError, match="CRC"):
        reader.rest(4, "the data")


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(bomb(b"data", megabytes=1024))
    tracemalloc.start()
    with Reader(path) as reader, pytest.raises(DataError, match=r"byte 4 \(uncompressed\): .* goes on"):
        reader.rest(4, "the data")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_no_memory_is_taken_for_what_a_file_cannot_hold(file):
    tracemalloc.start()
    with Reader(file(b"data")) as reader, pytest.raises(DataError, match="should reach to byte 1099511627776"):
        reader.rest(1 << 40, "the data")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_folders_pipes_and_nothing_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in ((tmp_path, "regular"), (tmp_path / "pipe", "regular"), (tmp_path / "none", "no such file")):
        with pytest.raises(DataError, match=reason):
            Reader(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "file"
    path.touch(mode=0)
    with pytest.raises(DataError, match="cannot be read"):
        Reader(path)


def test_spellings_prefer_the_uncompressed_file(tmp_path):
    name = "train-images-idx3-ubyte"
    assert find_file(tmp_path, name) is None
    for spelling in reversed(spellings(name)):
        (tmp_path / spelling).touch()
        assert find_file(tmp_path, name) == tmp_path / spelling
    assert spellings("test_batch.bin") == ["test_batch.bin", "test_batch.bin.gz"]


def test_the_md5_is_of_the_content_and_of_the_right_size_only(file):
    path = file(b"data")
    assert content_md5(path, 4) == "8d777f385d3dfec8815d20f7496026dc"
    assert content_md5(path, 3) is None
    assert content_md5(path, 5) is None
