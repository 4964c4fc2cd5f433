"""A user's own images, in every mode and every kind of disorder."""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchcaps.data import folder_cache
from torchcaps.data.decode import read_image
from torchcaps.data.folder import load_folder
from torchcaps.data.splits import joined, make_splits
from torchcaps.data.types import DataError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

RED, WHITE = [255, 0, 0], [255, 255, 255]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.data.folder._default_cache", lambda: tmp_path_factory.getbasetemp() / "cache")


def put(path: Path, color: Any = "red", mode: str = "RGB", size: tuple[int, int] = (8, 8), **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path, **options)
    return path


def fill(root: Path, counts: dict[str, int], suffix: str = "png") -> Path:
    """Images whose grey level says which they are."""
    for name, count in counts.items():
        for number in range(count):
            put(root / name / f"{number:03}.{suffix}", number, "L")
    return root


def middle(path: Path, channels: int = 3) -> list[int]:
    return read_image(path, 4, channels)[:, 2, 2].tolist()


# One file.


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif", "PNG", "JPG", "TIF"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    pixels = read_image(put(tmp_path / f"a.{suffix}"), 4, 3)
    assert pixels.shape == (3, 4, 4)
    assert pixels.dtype == torch.uint8
    assert np.abs(pixels[:, 2, 2].numpy().astype(int) - RED).max() <= 2


@pytest.mark.parametrize(
    ("mode", "color", "wanted"),
    [
        ("1", 1, WHITE),
        ("L", 100, [100] * 3),
        ("LA", (100, 255), [100] * 3),
        ("LA", (100, 0), WHITE),
        ("RGB", "red", RED),
        ("RGBA", (255, 0, 0, 255), RED),
        ("RGBA", (255, 0, 0, 0), WHITE),
        ("RGBA", (255, 0, 0, 128), [255, 127, 127]),
        ("I;16", 100 * 257, [100] * 3),
        ("I;16", 65535, WHITE),
    ],
)
def test_modes(tmp_path: Path, mode: str, color: Any, wanted: list[int]) -> None:
    assert middle(put(tmp_path / "a.png", color, mode)) == wanted


def test_palettes(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), "red").convert("P", palette=Image.Palette.ADAPTIVE)
    image.save(tmp_path / "a.png")
    assert middle(tmp_path / "a.png") == RED
    image.save(tmp_path / "b.png", transparency=image.getpixel((0, 0)))
    assert middle(tmp_path / "b.png") == WHITE
    image.save(tmp_path / "c.png", transparency=bytes([0] * 256))
    assert middle(tmp_path / "c.png") == WHITE


def test_cmyk_jpeg(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jpg", (0, 255, 255, 0), "CMYK")
    assert np.abs(np.array(middle(path)) - RED).max() <= 3


def test_sixteen_bit_colours(tmp_path: Path) -> None:
    """Pillow writes none, so the file is made by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + struct.pack(">HHH", 65535, 257 * 10, 0) * 4
    head = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 4)) + chunk(b"IEND", b"")
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    assert middle(path) == [255, 10, 0]


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (3, 3)), (6, (0, 3)), (8, (3, 0))])
def test_which_side_is_up(tmp_path: Path, orientation: int, corner: tuple[int, int]) -> None:
    pixels = np.zeros((32, 32), dtype=np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=95)
    seen = read_image(tmp_path / "a.jpg", 4, 1)[0]
    assert divmod(int(seen.argmax()), 4) == corner
    assert seen[corner] > 150  # its neighbours blur it


def test_the_middle_is_cut_out(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60), dtype=np.uint8)
    pixels[:, 20:40] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", 10, 1)[0, :, 1:9].eq(200).all()


def test_grey_by_luma(tmp_path: Path) -> None:
    assert middle(put(tmp_path / "a.png"), 1) == [76]


def test_large_photographs_are_the_same_to_the_eye(tmp_path: Path) -> None:
    """JPEG is decoded at a fraction of its size."""
    ramp = np.tile(np.linspace(0, 255, 1000).astype(np.uint8), (800, 1))
    Image.fromarray(ramp).save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    jpeg, png = (read_image(tmp_path / name, 16, 1).int() for name in ("a.jpg", "a.png"))
    assert (jpeg - png).abs().max() <= 3


def test_sixteen_bit_tiff(tmp_path: Path) -> None:
    values = np.array([[0, 100 * 257], [255 * 257, 1000]], dtype=np.uint16).repeat(4, 0).repeat(4, 1)
    for name, array in {"little": values, "big": values.astype(">u2")}.items():
        Image.fromarray(array).save(tmp_path / f"{name}.tif")
        seen = read_image(tmp_path / f"{name}.tif", 8, 1)[0]
        assert seen[::4, ::4].tolist() == [[0, 100], [255, 4]], name


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_deflate", "packbits", "jpeg"])
def test_compressed_tiff(tmp_path: Path, compression: str) -> None:
    path = put(tmp_path / "a.tif", compression=compression)
    assert np.abs(np.array(middle(path)) - RED).max() <= 2


@pytest.mark.parametrize("suffix", ["tif", "gif", "webp"])
def test_the_first_of_several_pages(tmp_path: Path, suffix: str) -> None:
    pages = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]
    options = {"lossless": True} if suffix == "webp" else {}
    pages[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=pages[1:], **options)
    with Image.open(tmp_path / f"a.{suffix}") as image:
        assert image.n_frames == 3
    assert middle(tmp_path / f"a.{suffix}") == RED


def test_an_animated_gif_with_transparency(tmp_path: Path) -> None:
    pages = [Image.new("P", (8, 8), index) for index in (0, 1)]
    for page in pages:
        page.putpalette([255, 0, 0, 0, 0, 255])
        page.paste(1 - page.getpixel((0, 0)), (0, 0, 4, 8))  # the left half is of the other colour
    pages[0].save(tmp_path / "a.gif", save_all=True, append_images=pages[1:], transparency=1, disposal=2)
    seen = read_image(tmp_path / "a.gif", 8, 3)
    assert seen[:, 4, 1].tolist() == WHITE
    assert seen[:, 4, 6].tolist() == RED


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_which_side_of_a_tiff_is_up(tmp_path: Path, compression: str | None) -> None:
    pixels = np.zeros((32, 48), dtype=np.uint8)
    pixels[:8, :] = 255  # above, and after a quarter turn clockwise on the right
    Image.fromarray(pixels).save(tmp_path / "a.tif", tiffinfo={274: 6}, compression=compression)
    seen = read_image(tmp_path / "a.tif", 4, 1)[0]
    assert seen[:, 3].min() > 150 > seen[:, 0].max()


# Files that cannot be used.


def huge(path: Path) -> None:
    """A hundred bytes that claim 30,000 x 30,000 pixels."""
    put(path)
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">II", 30_000, 30_000)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)


def somewhat_huge(path: Path) -> None:
    """Pillow only warns of this one."""
    huge(path)
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">II", 10_500, 10_000)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)


def huge_tiff(path: Path) -> None:
    put(path)
    data = path.read_bytes()
    for tag in (256, 257):  # width and height, each a long whose value is in the directory
        data = data.replace(struct.pack("<HHII", tag, 4, 1, 8), struct.pack("<HHII", tag, 4, 1, 30_000))
        data = data.replace(struct.pack("<HHIHH", tag, 3, 1, 8, 0), struct.pack("<HHIHH", tag, 3, 1, 30_000, 0))
    path.write_bytes(data)


def huge_gif(path: Path) -> None:
    put(path)
    data = bytearray(path.read_bytes())
    data[6:10] = struct.pack("<HH", 60_000, 60_000)
    path.write_bytes(data)


def cut(path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere.png")


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty.png": (lambda path: path.write_bytes(b""), "the file is empty"),
    "text.jpg": (lambda path: path.write_text("hello"), "does not hold an image"),
    "ppm.png": (lambda path: Image.new("L", (4, 4)).save(path, format="PPM"), "does not hold an image"),
    "float.tif": (lambda path: put(path, 0.5, "F"), r"numbers from 0\.5 to 0\.5, expected 8 or 16 bits"),
    "signed.tif": (lambda path: put(path, -7, "I"), "numbers from -7 to -7"),
    "huge.tif": (huge_tiff, "more than 100 million"),
    "huge.gif": (huge_gif, "more than 100 million"),
    "cut.tif": (cut, "truncated|broken|Truncated"),
    "cut.gif": (cut, "truncated|broken|Truncated"),
    "head.gif": (lambda path: path.write_bytes(b"GIF89a"), "broken|does not hold"),
    "head.tif": (lambda path: path.write_bytes(b"II*\0" + b"\xff" * 4), "broken|does not hold"),
    "no-page.tif": (lambda path: path.write_bytes(b"II*\0\x08\0\0\0" + bytes(20)), "broken|does not hold"),
    "huge.png": (huge, "more than 100 million"),
    "somewhat.png": (somewhat_huge, "10500x10000 pixels are more than 100 million"),
    "cut.png": (cut, "truncated|broken|Truncated"),
    "cut.jpg": (cut, "truncated|broken|Truncated"),
    "cut.webp": (cut, "truncated|broken|not hold|failed|decode"),
    "link.png": (broken_link, "No such file"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_files_have_a_reason(tmp_path: Path, name: str) -> None:
    make, reason = BAD[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=reason):
        read_image(tmp_path / name, 8, 3)


def test_all_unusable_files_are_named_at_once(tmp_path: Path) -> None:
    fill(tmp_path, {"cat": 5, "dog": 5})
    for name, (make, _) in BAD.items():
        make(tmp_path / "cat" / name)
    put(tmp_path / "stray.png")
    (tmp_path / "README.txt").write_text("no image, and no error")
    with pytest.raises(DataError) as caught:
        load_folder(tmp_path, size=8)
    for name in BAD:
        assert f"cat/{name}: " in str(caught.value)
    assert "stray.png: it lies beside the class folders" in str(caught.value)
    assert f"{len(BAD) + 1} of the files" in str(caught.value)

    data = load_folder(tmp_path, size=8, skip_bad=True)
    assert len(data.train) + len(data.test) == 10
    assert f"{len(BAD) + 1} of {len(BAD) + 11} files skipped" in data.note


@pytest.mark.parametrize("name", ["notes.txt", "a", "png", "a.png.part"])
def test_one_file_of_another_name(tmp_path: Path, name: str) -> None:
    put(tmp_path / name, format="PNG")
    with pytest.raises(DataError, match="its name does not end in"):
        read_image(tmp_path / name, 8, 3)


def test_files_that_are_no_images_are_left_out_with_a_line(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"cat": 3, "dog/more": 3})
    fill(tmp_path / "test", {"cat": 1, "dog": 1})
    for name in ("labels.csv", "train/read\nme.md", "train/cat/0.xml", "test/dog/0.xml", "train/dog/more/noname"):
        (tmp_path / name).write_text("no image")
    (tmp_path / "train" / "dog" / "nowhere.txt").symlink_to("nowhere")
    data = load_folder(tmp_path, size=8)
    assert (len(data.train), len(data.test)) == (6, 2)
    assert data.note == "skipped, as no images: labels.csv, train/read?me.md, train/cat/0.xml, and 3 more"
    assert data.note in make_splits(data).note


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "a"
    for suffix in ("png", "jpg", "webp", "bmp", "tif", "gif"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
        whole = path.read_bytes()
        for _ in range(40):
            data = bytearray(whole)
            for place in rng.integers(0, len(data), 3):
                data[place] = rng.integers(0, 256)
            path.write_bytes(data)
            try:
                assert read_image(path, 8, 3).shape == (3, 8, 8)
            except DataError as error:
                assert str(path) in str(error)  # noqa: PT017  # most, not all, are still readable


# Folders.


def test_classes_without_splits(tmp_path: Path) -> None:
    fill(tmp_path, {"dog": 20, "cat": 10, ".hidden": 3})
    for clutter in ("Thumbs.db", ".DS_Store", "desktop.ini", ".a.png"):
        (tmp_path / "dog" / clutter).write_bytes(b"x")
    data = load_folder(tmp_path, size=8)
    assert data.classes == ("cat", "dog")
    assert data.name == tmp_path.name
    assert data.train.images.shape == (24, 1, 8, 8)
    assert data.test.labels.bincount().tolist() == [2, 4]
    assert data.validation is None
    assert "as there is no test/" in data.note
    levels = torch.cat([data.train.images, data.test.images])[:, 0, 0, 0].tolist()
    assert sorted(levels) == sorted([*range(10), *range(20)])
    again, other = load_folder(tmp_path, size=8), load_folder(tmp_path, size=8, seed=1)
    assert torch.equal(data.test.images, again.test.images)
    assert not torch.equal(data.test.images, other.test.images)
    splits = make_splits(data, fraction=0.25)
    assert splits.validation is not None
    assert splits.validation.labels.bincount().tolist() == [2, 4]


@pytest.mark.parametrize("validation", ["val", "validation", "Valid"])
def test_folders_with_splits(tmp_path: Path, validation: str) -> None:
    fill(tmp_path / "train", {"a": 4, "b": 4})
    fill(tmp_path / validation, {"a": 1, "b": 2})
    fill(tmp_path / "test", {"a": 3, "b": 1})
    data = load_folder(tmp_path, size=8)
    assert data.validation is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [8, 3, 4]
    assert data.test.labels.tolist() == [0, 0, 0, 1]
    assert data.test.images[:, 0, 0, 0].tolist() == [0, 1, 2, 0]
    assert make_splits(data).validation is data.validation


def test_folder_with_train_only(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"a": 5, "b": 5})
    data = load_folder(tmp_path, size=8)
    assert (len(data.train), len(data.test)) == (8, 2)


def test_folders_in_class_folders(tmp_path: Path) -> None:
    fill(tmp_path, {"a": 2, "a/more": 3, "b": 2})
    data = load_folder(tmp_path, size=8)
    assert data.classes == ("a", "b")
    assert len(data.train) + len(data.test) == 7


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    fill(tmp_path, {"bus": 3, "train": 3})
    assert load_folder(tmp_path, size=8).classes == ("bus", "train")


def test_channels(tmp_path: Path) -> None:
    fill(tmp_path, {"a": 2, "b": 2})
    put(tmp_path / "a" / "grey.png", (7, 7, 7))
    assert load_folder(tmp_path, size=8).train.images.shape[1] == 1
    assert load_folder(tmp_path, size=8, channels=3).train.images.shape[1] == 3
    put(tmp_path / "a" / "red.png")
    assert load_folder(tmp_path, size=8).train.images.shape[1] == 3
    assert load_folder(tmp_path, size=8, channels=1).train.images.shape[1] == 1


def no_subfolders(root: Path) -> None:
    put(root / "a.png")


def nothing(root: Path) -> None:
    root.mkdir()


def empty_class(root: Path) -> None:
    fill(root, {"a": 2})
    (root / "b").mkdir()


def only_unusable(root: Path) -> None:
    fill(root, {"a": 2})
    (root / "b").mkdir()
    (root / "b" / "x.png").write_bytes(b"")


def only_notes(root: Path) -> None:
    fill(root, {"a": 2})
    (root / "b").mkdir()
    (root / "b" / "x.txt").write_text("hello")


def differing_classes(root: Path) -> None:
    fill(root / "train", {"a": 2, "b": 2})
    fill(root / "test", {"a": 2, "c": 2})


def without_train(root: Path) -> None:
    fill(root / "val", {"a": 2, "b": 2})
    fill(root / "test", {"a": 2, "b": 2})


def train_without_classes(root: Path) -> None:
    fill(root, {"train": 2, "test": 2})


def mixed(root: Path) -> None:
    fill(root / "train", {"a": 2, "b": 2})
    fill(root, {"other": 2})


def two_validations(root: Path) -> None:
    for name in ("train", "val", "validation"):
        fill(root / name, {"a": 2, "b": 2})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "does not exist; expected one subfolder per class"),
        (lambda root: root.write_text("x"), "is a file, not a folder"),
        (nothing, "has no subfolders"),
        (no_subfolders, "has no subfolders"),
        (lambda root: fill(root, {"a": 2}), "one class only, 'a'"),
        (empty_class, "b is empty"),
        (only_notes, r"b has no image \(.png, .*: put images in"),
        (only_unusable, "class 'b' .* has no usable image for train"),
        (differing_classes, "test folder .* missing b; not in train/: c"),
        (without_train, "has test, val, but no train/"),
        (train_without_classes, "train has no subfolders"),
        (mixed, "beside it other"),
        (two_validations, "both for validation"),
        (lambda root: fill(root, {"a": 1, "b": 5}), "class 'a' .* has one image only"),
    ],
)
def test_unusable_folders(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    make(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path / "data", size=8, skip_bad=True)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root may read everything, so it becomes nobody for a while."""
    if not hasattr(os, "geteuid"):
        pytest.skip("this system has no user ids")
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    fill(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "b").chmod(0)
    yield tmp_path
    (tmp_path / "b").chmod(0o700)


def test_no_permission(locked_folder: Path, ordinary_user: None) -> None:
    with pytest.raises(DataError, match="no permission"):
        load_folder(locked_folder, size=8)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size is 0"):
        load_folder(tmp_path, size=0)
    with pytest.raises(ValueError, match="channels is 2"):
        load_folder(tmp_path, size=8, channels=2)  # type: ignore[arg-type]


# The cache.


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were decoded, as they are."""
    files: list[Path] = []
    real = folder_cache.decode

    def spy(path: Path, size: int, channels: int) -> Any:
        files.append(path)
        return real(path, size, channels)

    monkeypatch.setattr(folder_cache, "decode", spy)
    return files


def test_images_are_decoded_once(tmp_path: Path, decoded: list[Path]) -> None:
    fill(tmp_path, {"a": 3, "b": 3})
    first = load_folder(tmp_path, size=8)
    assert len(decoded) == 6
    again = load_folder(tmp_path, size=8)
    assert len(decoded) == 6
    assert torch.equal(first.train.images, again.train.images)


def change_size(root: Path) -> None:
    put(root / "a" / "000.png", 99, "L", size=(30, 30))


def change_time(root: Path) -> None:
    os.utime(root / "a" / "000.png", ns=(1, 1))


def add(root: Path) -> None:
    put(root / "a" / "new.png", 99, "L")


def remove(root: Path) -> None:
    (root / "a" / "000.png").unlink()


def rename(root: Path) -> None:
    (root / "a" / "000.png").rename(root / "a" / "zzz.png")


@pytest.mark.parametrize("change", [change_size, change_time, add, remove, rename])
def test_changes_are_seen(tmp_path: Path, decoded: list[Path], change: Callable[[Path], None]) -> None:
    fill(tmp_path / "data", {"a": 3, "b": 3})
    cache = tmp_path / "cache"
    load_folder(tmp_path / "data", size=8, cache=cache)
    before = len(decoded)
    change(tmp_path / "data")
    load_folder(tmp_path / "data", size=8, cache=cache)
    assert len(decoded) > before
    assert len(list(cache.glob("*.npy"))) == 1, "the old images are removed"


def test_sizes_and_channels_have_their_own_place(tmp_path: Path, decoded: list[Path]) -> None:
    fill(tmp_path, {"a": 3, "b": 3})
    for _ in range(2):
        assert load_folder(tmp_path, size=8).train.images.shape[1:] == (1, 8, 8)
        assert load_folder(tmp_path, size=9).train.images.shape[1:] == (1, 9, 9)
        assert load_folder(tmp_path, size=8, channels=3).train.images.shape[1:] == (3, 8, 8)
    assert len(decoded) == 18


def test_unusable_files_are_remembered(tmp_path: Path, decoded: list[Path]) -> None:
    fill(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "a" / "bad.png").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(DataError, match=r"bad\.png: the file is empty"):
            load_folder(tmp_path, size=8)
        assert len(load_folder(tmp_path, size=8, skip_bad=True).train) == 4
    assert len(decoded) == 7


@pytest.mark.parametrize("damage", ["*.npy", "*.json"])
@pytest.mark.parametrize("left", [0, 10, 150])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, decoded: list[Path], damage: str, left: int) -> None:
    fill(tmp_path / "data", {"a": 3, "b": 3})
    cache = tmp_path / "cache"
    first = load_folder(tmp_path / "data", size=8, cache=cache)
    (file,) = cache.glob(damage)
    os.truncate(file, min(left, file.stat().st_size - 1))
    again = load_folder(tmp_path / "data", size=8, cache=cache)
    assert len(decoded) == 12
    assert torch.equal(first.train.images, again.train.images)


def test_without_a_place_for_the_cache_it_goes_on(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"a": 3, "b": 3})
    (tmp_path / "cache").write_text("a file where the folder should be")
    data = load_folder(tmp_path / "data", size=8, cache=tmp_path / "cache")
    assert len(data.train) == 4
    assert "not cached" in data.note


def test_each_image_knows_its_file(tmp_path: Path) -> None:
    images = load_folder(fill(tmp_path, {"a": 6, "b": 6}), size=8)
    splits = make_splits(images)
    assert splits.validation is not None
    for split in (splits.train, splits.validation, splits.test):
        for pixels, label, file in zip(split.images, split.labels.tolist(), split.files, strict=True):
            assert file.parent == tmp_path / images.classes[label]
            assert int(file.stem) == int(pixels[0, 4, 4])  # its grey level
    files = {*splits.train.files, *splits.validation.files, *splits.test.files}
    assert files == set(tmp_path.glob("[ab]/*.png"))
    together = joined(splits.train, splits.validation)
    assert together.files == splits.train.files + splits.validation.files
