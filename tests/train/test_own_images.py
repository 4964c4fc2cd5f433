"""`torchcaps.fit`: what it takes, what it says, and what its classifier knows."""

import errno
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

import torchcaps
from torchcaps import Classifier
from torchcaps.data import Split, load_folder
from torchcaps.data.own import FromDataset
from torchcaps.errors import OptionError, UserError
from torchcaps.runs.folder import RunFolderError
from torchcaps.train import fit, own_data
from train.test_arrays import IMAGES, LABELS, TINY, make_set

Capture = pytest.CaptureFixture[str]
SMALL: dict[str, Any] = {**TINY, "epochs": 2}


class Shapes(Dataset[Any]):
    """The images of `make_set`; counts how often each is read, over all processes."""

    classes = ("above", "left")

    def __init__(self, images: Any = IMAGES, labels: Any = LABELS, *, listed: bool = True) -> None:
        self.images, self.labels_of_items = images, labels.tolist()
        self.reads = torch.zeros(len(images), dtype=torch.int64).share_memory_()
        if listed:
            self.targets = self.labels_of_items

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        self.reads[place] += 1
        return self.images[place], self.labels_of_items[place]


def bits(classifier: Classifier) -> bytes:
    return b"".join(value.numpy().tobytes() for value in classifier.state_dict().values())


@pytest.fixture(scope="module")
def of_arrays() -> bytes:
    return bits(fit(IMAGES, LABELS, **SMALL))


def test_a_dataset_is_as_good_as_arrays(of_arrays: bytes) -> None:
    found = fit(Shapes(), **SMALL)
    assert bits(found) == of_arrays
    assert found.classes == ("above", "left")
    assert bits(fit(TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS)), **SMALL)) == of_arrays
    assert bits(fit([(Image.fromarray(i), int(k)) for i, k in zip(IMAGES, LABELS, strict=True)], **SMALL)) == of_arrays
    assert (
        bits(fit(Subset(Shapes(np.concatenate([IMAGES, IMAGES]), np.tile(LABELS, 2)), range(64)), **SMALL)) == of_arrays
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_is_as_good_as_memory(of_arrays: bytes, workers: int) -> None:
    assert bits(fit(Shapes(), **SMALL, stream=True, workers=workers)) == of_arrays


@pytest.mark.parametrize(
    "changes",
    [{"mixup": 0.3}, {"standardise": "set"}, {"average_epochs": 1, "norm": "batch"}, {"validation": "none"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_stream_with_other_settings(changes: dict[str, Any]) -> None:
    memory, stream = (fit(Shapes(), **{**SMALL, **changes}, stream=stream, workers=1) for stream in (False, True))
    assert bits(memory) == bits(stream)
    images, _ = make_set(10, 1)
    assert torch.equal(memory.predict(images).activation, stream.predict(images).activation)


def test_a_stream_reads_what_a_batch_needs() -> None:
    data, seen = Shapes(), Shapes()
    FromDataset(seen)  # what is looked at before
    fit(data, **{**SMALL, "epochs": 3}, stream=True, workers=2, batch_size=16)
    reads = data.reads - seen.reads
    # of 58 training images 48 are in the three batches of an epoch; all 6 validation images are read in each epoch
    assert int(reads.sum()) == 3 * (48 + 6)
    assert int(reads.max()) == 3


def test_labels_that_only_items_have(of_arrays: bytes) -> None:
    data = Shapes(listed=False)
    assert bits(fit(data, **SMALL, stream=True, workers=1)) == of_arrays
    lying = Shapes()
    lying.targets = [1 - label for label in lying.targets]  # as where a transform of labels is not in the list
    assert bits(fit(lying, **SMALL, stream=True, workers=1)) == of_arrays


def test_streams_by_themselves_where_images_are_many(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(own_data, "STREAMED_ABOVE", 64 * 18**2 - 1)
    fit(Shapes(), **{**SMALL, "epochs": 1, "progress": True}, workers=1)
    assert capsys.readouterr().out.startswith("64 images are read from disk in each epoch, by 1 process (")
    monkeypatch.setattr(own_data, "STREAMED_ABOVE", 64 * 18**2)
    fit(Shapes(), **{**SMALL, "epochs": 1, "progress": True})
    assert "read from disk" not in capsys.readouterr().out


def test_a_folder(images: Path) -> None:
    memory, stream = (fit(images, **SMALL, stream=stream, workers=1) for stream in (False, True))
    assert memory.classes == ("above", "left")
    assert memory.network.in_channels == stream.network.in_channels == 1
    assert bits(memory) == bits(stream)
    assert bits(fit(str(images), **SMALL)) == bits(memory)
    assert len(load_folder(images, size=18, test_fraction=0).train) == 48  # nothing is kept for a test


def test_a_folder_with_its_own_validation_images(images: Path, tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / part).symlink_to(images)
    options = {**SMALL, "batch_size": 12}
    own = fit(tmp_path, **options)
    assert bits(own) == bits(fit(images, **options, validation=images))
    assert bits(own) == bits(fit(tmp_path, **options, stream=True, workers=1))
    assert bits(own) != bits(fit(tmp_path, **options, validation="stratified"))
    with pytest.raises(UserError, match="a stream is not joined with its validation images"):
        fit(tmp_path, **options, validation="none", stream=True)


def test_a_file_that_is_no_image(images: Path, tmp_path: Path) -> None:
    for name in ("above", "left"):
        (tmp_path / name).mkdir()
        for file in list((images / name).iterdir())[:6]:
            (tmp_path / name / file.name).symlink_to(file)
    (tmp_path / "left/bad.png").write_text("nothing")
    for streamed in (False, True):
        with pytest.raises(UserError, match=r"bad.png.* does not hold an image|left/bad.png: it does not hold"):
            fit(tmp_path, **SMALL, stream=streamed, workers=1)
    fit(tmp_path, **SMALL, skip_bad=True)
    with pytest.raises(UserError, match="cannot skip files that are no images"):
        fit(tmp_path, **SMALL, skip_bad=True, stream=True)


VALIDATION = make_set(20, 7)


@pytest.mark.parametrize("kind", ["arrays", "names", "dataset", "folder"])
def test_own_validation_images(kind: str, images: Path) -> None:
    fresh, labels = VALIDATION
    validation: Any = {
        "arrays": (fresh, labels),
        "names": (fresh, np.array(["0", "1"])[labels]),
        "dataset": TensorDataset(torch.from_numpy(fresh), torch.from_numpy(labels)),
        "folder": images,
    }[kind]
    names = np.array(["above", "left"])
    found = fit(IMAGES, names[LABELS] if kind == "folder" else LABELS, **SMALL, validation=validation)
    if kind == "folder":
        folder = load_folder(images, size=18, test_fraction=0).train
        fresh, labels = folder.images.numpy(), folder.labels.numpy()
    wrong = (found.predict(fresh).label.numpy() != labels).mean()
    assert found.validation_error == pytest.approx(wrong)
    assert found.card["recipe"]["data"]["validation"] == "auto"


def test_a_share_is_no_validation_set() -> None:
    with pytest.raises(OptionError, match=r"validation is 0\.2, expected auto, stratified, none, a folder, \(images"):
        torchcaps.fit(torch.rand(8, 8, 8), [0, 1] * 4, validation=0.2)  # type: ignore[arg-type]


def test_all_images_are_trained_on_with_own_validation_images() -> None:
    data = Shapes()
    looked_at = Shapes()
    FromDataset(looked_at)
    fit(data, **{**SMALL, "epochs": 1}, validation=VALIDATION, stream=True, workers=1, batch_size=16)
    assert torch.equal(data.reads - looked_at.reads, torch.ones(64, dtype=torch.int64))


def test_classes_of_validation_images() -> None:
    fresh, labels = VALIDATION
    with pytest.raises(UserError, match="validation images are of the class 5, which no training image has"):
        fit(IMAGES, LABELS, **SMALL, validation=(fresh, np.where(labels, 5, 0)))
    with pytest.raises(UserError, match="validation images are of the class 0, which no training image has"):
        fit(IMAGES, LABELS + 1, **SMALL, validation=(fresh[labels == 0], labels[labels == 0]))  # no place in "1", "2"
    only_one = fit(IMAGES, LABELS, **SMALL, validation=(fresh[labels == 1], labels[labels == 1]))
    assert only_one.validation_error is not None


def test_large_images_are_not_shrunk_without_a_word(capsys: Capture) -> None:
    large = np.repeat(np.repeat(IMAGES[:8], 8, axis=1), 8, axis=2)  # 144x144
    options = {"epochs": 1, "first_channels": 16, "residual": False, "reconstruction": 0.0}
    found = fit(large, LABELS[:8], **options)
    assert (found.network.image_size, found.model) == (64, "headcaps64")
    assert capsys.readouterr().out.startswith(
        "images of 144 pixels (shorter side) become 64x64; size=... changes this\n"
    )
    assert fit(large, LABELS[:8], **options, size=32, progress=False).model == "headcaps32"
    assert "become" not in capsys.readouterr().out


def test_history_and_files(tmp_path: Path) -> None:
    found = fit(IMAGES, LABELS, **{**SMALL, "epochs": 4})
    assert [row.epoch for row in found.history] == [1, 2, 3, 4]
    assert all(row.loss > 0 and row.training_error is not None for row in found.history)
    errors = [row.validation_error for row in found.history if row.validation_error is not None]
    assert found.validation_error == min(errors)
    assert len(errors) == 4
    found.save(tmp_path / "kept")
    again = torchcaps.load(tmp_path / "kept")
    fresh, _ = make_set(12, 3)
    assert torch.equal(again.predict(fresh).activation, found.predict(fresh).activation)
    assert again.history == found.history
    assert again.validation_error == found.validation_error
    last = fit(IMAGES, LABELS, **{**SMALL, "epochs": 4}, weights="last")
    assert last.validation_error == errors[-1]
    assert fit(IMAGES, LABELS, **SMALL, validation="none").validation_error is None


class Press(Callback):
    """Presses Ctrl-C, or what else, in a step."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer: Any, *arguments: Any) -> None:
        if trainer.global_step == self.step:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("streamed", [False, True])
def test_interrupted_training_keeps_the_best(capsys: Capture, streamed: bool) -> None:
    """Three steps to an epoch: in the third epoch it stops, with the better weights of the first two."""
    whole = fit(IMAGES, LABELS, **SMALL, loss="spread", batch_size=16, schedule="constant")
    handler = signal.getsignal(signal.SIGINT)
    more = {**SMALL, "epochs": 9, "batch_size": 16, "schedule": "constant", "callbacks": [Press(7)]}
    rising = {"loss": "cross-entropy"}  # no part of it depends on the number of epochs
    expected = fit(IMAGES, LABELS, **{**SMALL, **rising}, batch_size=16, schedule="constant")
    found = fit(Shapes(), **more, **rising, stream=streamed, workers=1)
    assert bits(found) == bits(expected) != bits(whole)
    assert len(found.history) == 2
    assert found.validation_error == expected.validation_error
    assert not found.training
    assert signal.getsignal(signal.SIGINT) == handler
    assert capsys.readouterr().err == (
        "stopped after step 7 by SIGINT; the classifier has the weights with the lowest validation error so far\n"
    )


def test_interrupted_in_the_first_epoch(capsys: Capture) -> None:
    found = fit(IMAGES, LABELS, **SMALL, batch_size=16, callbacks=[Press(2)])
    assert (found.history, found.validation_error) == ((), None)
    assert capsys.readouterr().err.endswith("the classifier has the weights of that step\n")
    assert len(found.predict(IMAGES[:3]).names) == 3


def test_terminated_is_not_returned_from() -> None:
    with pytest.raises(SystemExit) as ended:
        fit(IMAGES, LABELS, **SMALL, callbacks=[Press(1, signal.SIGTERM)])
    assert ended.value.code == 128 + signal.SIGTERM


def test_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(values: Any, file: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(RunFolderError, match=r"No space left on device; training keeps .* set TMPDIR") as error:
        fit(IMAGES, LABELS, **SMALL)
    assert "resume" not in str(error.value)


class Broken(Shapes):
    def __getitem__(self, place: int) -> Any:
        image, label = super().__getitem__(place)
        return (image - 1.0, label) if place == 62 else (image / 255, label)


def test_words() -> None:
    colours = torch.rand(4, 4, 20, 20)
    for images, labels, changes, words in (
        (IMAGES, None, {}, r"labels are missing: expected fit\(images, labels\)"),
        (Shapes(), LABELS, {}, "labels are for arrays"),
        (IMAGES, LABELS, {"stream": True}, "stream=True is for a Dataset or a folder"),
        (Shapes(), None, {"stream": "yes"}, "stream is 'yes', expected True, False or 'auto'"),
        (Shapes(), None, {"stream": True, "workers": -1}, "workers is -1, expected"),
        (IMAGES, LABELS, {"validation": "stratifed"}, "validation is 'stratifed', expected auto, stratified, none, a"),
        (IMAGES, LABELS, {"validation": "instance"}, "validation is 'instance', expected auto"),
        (IMAGES, LABELS, {"validation": (IMAGES,)}, r"a tuple of 1, expected \(images, labels\)"),
        ("nowhere", None, {}, "nowhere does not exist"),
        (iter([]), None, {}, "images are list_iterator, expected arrays"),
        (torch.utils.data.DataLoader(Shapes()), None, {}, "of a DataLoader, give its .dataset"),
        ([], None, {}, "the dataset is empty"),
        ([{"image": 1}], None, {}, r"item 0 of the dataset is dict, expected a pair \(image, label\)"),
        ([(colours, 0)], None, {}, r"item 0 .* shape \[4, 4, 20, 20\], expected \[H, W\]"),
        (Broken(), None, {"stream": True, "workers": 1, "batch_size": 25}, "item 62 .* expected .0, 1."),
        (Shapes(labels=LABELS + 1), None, {}, "labels are from 1 to 2, expected 0 to 1: the dataset has 2 classes"),
    ):
        with pytest.raises(UserError, match=words):
            fit(images, labels, **(SMALL | changes))


def test_images_of_unequal_sizes_and_colours() -> None:
    """Squares from the middle, in colour where one image is."""
    random = np.random.default_rng(0)
    grey = random.integers(0, 255, (60, 36), dtype=np.uint8)
    colours = [random.integers(0, 255, (20 + k, 24, 3), dtype=np.uint8) for k in range(3)]
    found, classes = FromDataset([(grey, "a"), *((image, "b") for image in colours)]).load(18, None)
    assert classes == ("a", "b")
    assert isinstance(found, Split)
    assert found.images.shape == (4, 3, 18, 18)
    blocks = grey.reshape(30, 2, 18, 2).mean((1, 3))  # half as large
    expected = torch.from_numpy(blocks[6:24].round()).to(torch.uint8)
    assert torch.equal(found.images[0], expected.expand(3, 18, 18))


def test_few_images_are_evaluated_as_they_were_trained() -> None:
    """The running statistics of batch norms follow within the few steps that there are."""
    found = fit(IMAGES[:8], LABELS[:8], epochs=1, validation="none", progress=False)
    split = found.prepare(Split(torch.as_tensor(IMAGES[:8])[:, None], torch.as_tensor(LABELS[:8])))
    image = found.pipeline.evaluate(split.images, split.labels).image
    norms = [module for module in found.network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    found.network.train()
    before = [norm.running_var.clone() for norm in norms if norm.running_var is not None]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        found.network(image)
    for old, norm in zip(before, norms, strict=True):
        assert norm.running_var is not None
        assert 0.5 < old.mean() / norm.running_var.mean() < 1.5
