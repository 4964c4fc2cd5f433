import struct

import pytest
import torch

from data_files import changed, idx_contents, idx_images, idx_labels, md5, pixels, put
from torchcaps.data import idx
from torchcaps.data.idx import load_idx_set, read_images, read_labels
from torchcaps.data.types import DataError


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_images_and_labels_are_what_was_written(tmp_path, name, gzipped):
    data = load_idx_set(name, put(tmp_path, idx_contents(train=12, test=3), gzipped))
    assert (data.name, len(data.classes), data.folder) == (name, 10, tmp_path)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert torch.equal(data.train.images, torch.from_numpy(pixels(12, 28, 28))[:, None])
    assert torch.equal(data.test.images, torch.from_numpy(pixels(3, 28, 28))[:, None])


def test_names_with_a_dot_are_found(tmp_path):
    contents = {name.replace("-idx", ".idx"): content for name, content in idx_contents().items()}
    assert len(load_idx_set("mnist", put(tmp_path, contents)).train) == 7


def test_a_missing_file_is_named(tmp_path):
    put(tmp_path, idx_contents())
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"no t10k-labels-idx1-ubyte or t10k-labels.idx1-ubyte or"):
        load_idx_set("mnist", tmp_path)


def test_counts_have_to_agree(tmp_path):
    put(tmp_path, {**idx_contents(train=7), "train-images-idx3-ubyte": idx_images(6)})
    with pytest.raises(DataError, match="byte 4: 6 images, but the file of labels beside it has 7"):
        load_idx_set("mnist", tmp_path)


def test_the_files_of_the_other_set_are_recognised(tmp_path, monkeypatch):
    put(tmp_path, idx_contents())
    monkeypatch.setitem(idx.TRAIN_LABELS_MD5, "fashion-mnist", md5(idx_labels(7)))
    with pytest.raises(DataError, match="the files of fashion-mnist, not of mnist"):
        load_idx_set("mnist", tmp_path)
    assert load_idx_set("fashion-mnist", tmp_path).name == "fashion-mnist"


@pytest.mark.parametrize(
    ("offset", "new", "message"),
    [
        (0, b"PK", "byte 0: not an IDX file"),
        (2, b"\x0d", "byte 2: type code 0x0d; expected 0x08"),
        (3, b"\x01", "byte 3: 1 dimensions; expected 3"),
        (4, struct.pack(">I", 0), "byte 4: the file holds nothing"),
        (4, struct.pack(">I", 2**32 - 1), "byte 1584: the file ends here"),
        (4, struct.pack(">I", 1), "byte 800: 784 bytes too many"),
        (8, struct.pack(">I", 32), "byte 8: images of 32x28 pixels; expected 28x28"),
        (12, struct.pack(">I", 2**31), "byte 12: images of"),
    ],
)
def test_wrong_headers_are_named_by_byte(tmp_path, offset, new, message):
    path = tmp_path / "images"
    path.write_bytes(changed(idx_images(2), offset, new))
    with pytest.raises(DataError, match=f"{path}: {message}"):
        read_images(path)


def test_a_label_out_of_range_is_named_by_byte(tmp_path):
    path = tmp_path / "labels"
    path.write_bytes(changed(idx_labels(20), 8 + 13, b"\x0a"))
    with pytest.raises(DataError, match="byte 21: label 10; expected 0 to 9"):
        read_labels(path)
