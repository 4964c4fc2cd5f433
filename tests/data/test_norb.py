import errno
import struct
import warnings
from pathlib import Path

import pytest
import torch

from data_files import changed, norb_categories, norb_contents, norb_info, norb_pairs, pixels, put
from torchcaps.data import writing
from torchcaps.data.norb import (
    CAMERAS,
    FILES,
    load_smallnorb,
    read_categories,
    read_info,
    read_pairs,
    write_smallnorb,
)
from torchcaps.data.types import DataError, Split


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("camera", ["left", "right", "both"])
def test_images_labels_and_factors_are_what_was_written(tmp_path, camera, gzipped):
    data = load_smallnorb(put(tmp_path, norb_contents(train=7, test=3), gzipped), camera)
    pairs = torch.from_numpy(pixels(7, 2, 96, 96))
    wanted = {"left": pairs[:, :1], "right": pairs[:, 1:], "both": pairs}[camera]
    assert torch.equal(data.train.images, wanted)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert data.test.factor("instance").tolist() == [0, 1, 2]
    assert data.test.factor("elevation").tolist() == [0, 1, 2]
    assert data.train.factor("azimuth").tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert data.train.factor("lighting").tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert data.classes == ("animal", "human", "airplane", "truck", "car")


def test_a_plain_file_is_mapped_and_never_changed(tmp_path):
    put(tmp_path, norb_contents(train=4))
    path = tmp_path / f"{FILES['train']}-dat.mat"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left, both = load_smallnorb(tmp_path).train.images, load_smallnorb(tmp_path, "both").train.images
    assert left.stride() == both.stride() == (2 * 96 * 96, 96 * 96, 96, 1)  # a view of the pairs, not a copy
    assert str(path) in Path("/proc/self/maps").read_text()
    left.zero_()
    assert path.read_bytes() == norb_pairs(4)


def test_without_an_info_file_nothing_is_known_until_it_is_asked_for(tmp_path):
    put(tmp_path, norb_contents())
    (tmp_path / f"{FILES['train']}-info.mat").unlink()
    data = load_smallnorb(tmp_path)
    assert data.train.factors["azimuth"].tolist() == [-1] * 4
    with pytest.raises(DataError, match="azimuth of 4 of 4 images is not known"):
        data.train.factor("azimuth")
    assert len(data.test.factor("azimuth")) == 3


def test_minus_one_in_the_info_file_is_not_known(tmp_path):
    path = tmp_path / "info"
    path.write_bytes(changed(norb_info(3), 20 + 16 + 4, struct.pack("<i", -1)))
    assert read_info(path)[1].tolist() == [1, -1, 2, 1]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 0x1E3D4C54, "byte 0: magic number 0x1e3d4c54, integers; expected 0x1e3d4c55, bytes"),
        (0, 0x1E3D4C53, "byte 0: magic number 0x1e3d4c53, doubles"),
        (0, 0x554C3D1E, "byte 0: magic number 0x554c3d1e, no matrix of this format"),
        (4, 3, "byte 4: 3 dimensions; expected 4"),
        (4, -1, "byte 4: -1 dimensions"),
        (4, 2**31 - 1, "byte 4: 2147483647 dimensions"),
        (8, 3, "byte 8: dimension 1 is 3; expected 2, as many as the cat file beside it has"),
        (8, -2, "byte 8: dimension 1 is -2"),
        (12, 1, "byte 12: dimension 2 is 1; expected 2"),
        (16, 108, "byte 16: dimension 3 is 108; expected 96"),
        (20, 2**31 - 1, "byte 20: dimension 4 is"),
    ],
)
def test_wrong_headers_are_named_by_byte(tmp_path, offset, value, message):
    path = tmp_path / "dat"
    path.write_bytes(changed(norb_pairs(2), offset, struct.pack("<I", value & 0xFFFFFFFF)))
    with pytest.raises(DataError, match=f"{path}: {message}"):
        read_pairs(path, CAMERAS["left"], 2)


def test_sizes_have_to_agree_with_the_header(tmp_path):
    path = tmp_path / "dat"
    path.write_bytes(norb_pairs(2)[:-1])
    with pytest.raises(DataError, match="byte 36887: the file ends here, but the data of 2 pairs"):
        read_pairs(path, CAMERAS["left"], 2)
    path.write_bytes(norb_pairs(2) + b"more")
    with pytest.raises(DataError, match="byte 36888: 4 bytes too many"):
        read_pairs(path, CAMERAS["left"], 2)


@pytest.mark.parametrize("bad", [5, -1, 2**31 - 1])
def test_a_category_out_of_range_is_named_by_byte(tmp_path, bad):
    path = tmp_path / "cat"
    path.write_bytes(changed(norb_categories(9), 20 + 4 * 6, struct.pack("<i", bad)))
    with pytest.raises(DataError, match=f"byte 44: category {bad}; expected 0 to 4"):
        read_categories(path)


@pytest.mark.parametrize(
    ("column", "bad", "name"), [(0, 10, "instance"), (1, 9, "elevation"), (2, 7, "azimuth"), (3, -2, "lighting")]
)
def test_a_factor_out_of_range_is_named_by_byte(tmp_path, column, bad, name):
    path = tmp_path / "info"
    path.write_bytes(changed(norb_info(5), 20 + 16 * 3 + 4 * column, struct.pack("<i", bad)))
    with pytest.raises(DataError, match=f"byte {68 + 4 * column}: {name} {bad}; expected 0 to"):
        read_info(path)


def test_an_unknown_camera(tmp_path):
    with pytest.raises(DataError, match="no camera 'middle'; expected one of left, right, both"):
        load_smallnorb(tmp_path, "middle")


def splits():
    factors = {"instance": torch.tensor([4, 6, 7]), "azimuth": torch.tensor([0, 34, -1])}
    train = Split(torch.from_numpy(pixels(3, 2, 96, 96)), torch.tensor([4, 0, 2]), factors)
    return train, Split(torch.from_numpy(pixels(300, 2, 96, 96)), torch.arange(300) % 5)


def test_what_is_written_can_be_read(tmp_path):
    train, test = splits()
    write_smallnorb(tmp_path / "new", train, test)
    data = load_smallnorb(tmp_path / "new", "both")
    for was, now in ((train, data.train), (test, data.test)):
        assert torch.equal(was.images, now.images)
        assert torch.equal(was.labels, now.labels)
    assert data.train.factor("instance").tolist() == [4, 6, 7]
    assert data.train.factors["azimuth"].tolist() == [0, 34, -1]
    assert data.train.factors["lighting"].tolist() == [-1, -1, -1]
    assert len(list((tmp_path / "new").iterdir())) == 6


def test_the_format_is_the_official_one(tmp_path):
    data = load_smallnorb(put(tmp_path / "official", norb_contents(4, 3)), "both")
    write_smallnorb(tmp_path / "ours", data.train, data.test)
    for name, content in norb_contents(4, 3).items():
        assert (tmp_path / "ours" / name).read_bytes() == content


def test_nothing_is_kept_of_what_could_not_be_written(tmp_path, monkeypatch):
    calls = []

    def full(file):
        calls.append(file)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torchcaps.data.norb.to_disk", full)
    with pytest.raises(DataError, match=r"testing-dat.mat cannot be written: No space left on device"):
        write_smallnorb(tmp_path, *splits())
    assert list(tmp_path.iterdir()) == []


def test_only_what_can_be_read_again_is_written(tmp_path):
    train, test = splits()
    mono = Split(train.images[:, :1], train.labels)
    with pytest.raises(DataError, match=r"images are \[3, 1, 96, 96\]"):
        write_smallnorb(tmp_path, mono, test)
    with pytest.raises(DataError, match="labels reach from 0 to 5"):
        write_smallnorb(tmp_path, Split(train.images, torch.tensor([0, 5, 1])), test)
    with pytest.raises(DataError, match="azimuth 340 has no place"):
        write_smallnorb(tmp_path, Split(train.images, train.labels, {"azimuth": torch.tensor([340, 0, 0])}), test)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"), writing.whole_file(tmp_path / "file" / "x"):
        pass
