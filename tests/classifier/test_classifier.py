"""Classifiers take images as users have them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.classifier import Classifier
from torchcaps.data import DataError, Pipeline, Split
from torchcaps.data.decode import read_image
from torchcaps.data.transforms import crop_at, standardise, to_unit

Tiny = Callable[..., Classifier]


@pytest.mark.parametrize("model", ["hybrid32", "cnn32"])
def test_predict(tiny: Tiny, split: Split, model: str) -> None:
    classifier = tiny(model=model)
    label, activation, names = classifier.predict(split.images)
    assert activation.shape == (7, 3)
    assert torch.equal(label, activation.argmax(1))
    assert names == [classifier.classes[index] for index in label]
    assert len(activation.unique(dim=0)) == 7  # these weights do look at the images


def test_predictions_are_the_network_s_of_the_centre_crop(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    centre = standardise(to_unit(split.images[:, :, 4:20, 2:18]))  # the shorter side is 20 already
    expected = classifier.network(centre).activation
    torch.testing.assert_close(classifier.predict(split.images).activation, expected)


def test_forms_of_one_and_the_same_images(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    expected = classifier.predict(split.images).activation
    grey = split.images[:, 0]
    for images in (
        grey,
        grey.numpy(),
        grey[..., None],
        grey / 255,
        (grey / 255).double().numpy(),
        split.images.numpy(),
    ):
        assert torch.equal(classifier.predict(images).activation, expected)
    single = classifier.predict(grey[0]).activation
    torch.testing.assert_close(single, expected[:1])
    assert not single.requires_grad


def test_images_that_are_not_square_are_cut_to_their_middle(tiny: Tiny) -> None:
    classifier = tiny()
    wide = torch.zeros(1, 40, 120, dtype=torch.uint8)
    wide[:, :, 40:80] = torch.randint(0, 256, (40, 40), generator=torch.Generator().manual_seed(0)).byte()
    torch.testing.assert_close(
        classifier.predict(wide).activation, classifier.predict(wide[:, :, 40:80]).activation, rtol=0, atol=1e-6
    )


def test_grey_images_for_a_network_of_colours(tiny: Tiny, split: Split) -> None:
    classifier = tiny(in_channels=3)
    expected = classifier.predict(split.images.expand(-1, 3, -1, -1)).activation
    assert torch.equal(classifier.predict(split.images).activation, expected)
    with pytest.raises(DataError, match=r"three grey images or one in colour: expected \[N, C, H, W\]"):
        classifier.predict(np.zeros((3, 24, 24), np.uint8))
    assert len(classifier.predict(np.zeros((24, 24, 3), np.uint8)).names) == 1


def test_colours_for_a_grey_network_are_those_of_image_files(tiny: Tiny, tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8)
    Image.fromarray(colours).save(tmp_path / "colours.png")
    from_file = read_image(tmp_path / "colours.png", 20, 1)
    assert torch.equal(tiny().prepare(colours).images[0], from_file)


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channels_are_refused(tiny: Tiny, channels: int) -> None:
    with pytest.raises(DataError, match=f"images have {channels} channels, expected 1"):
        tiny().predict(torch.zeros(2, channels, 24, 24, dtype=torch.uint8))


def test_images_below_the_crop(tiny: Tiny) -> None:
    small = torch.zeros(2, 12, 30, dtype=torch.uint8)
    assert len(tiny().predict(small).names) == 2  # resized
    with pytest.raises(DataError, match="images are 12x30, the network needs at least 16x16"):
        tiny(resize=None).predict(small)


@pytest.mark.parametrize("crops", [1, 5, 9, 13])
def test_crops_are_averaged(tiny: Tiny, split: Split, crops: int) -> None:
    classifier = tiny(resize=32)
    places = {1: [(0.5, 0.5)], 5: [(0.5, 0.5), (0, 0), (0, 1), (1, 0), (1, 1)]}
    places[9] = [(down, right) for down in (0, 0.5, 1) for right in (0, 0.5, 1)]
    either = [(1 + sign * step / 8) / 2 for step in (1, 2, 3) for sign in (-1, 1)]
    places[13] = [(0.5, 0.5), *((down, right) for down in either for right in (down, 1 - down))]
    each = [
        classifier.network(standardise(to_unit(crop_at(classifier.prepare(split).images, 16, *place)))).activation
        for place in places[crops]
    ]
    found = classifier.predict(split.images, crops=crops).activation
    torch.testing.assert_close(found, torch.stack(each).mean(0), rtol=1e-5, atol=1e-6)


def test_crops_of_whole_images_are_refused(tiny: Tiny, split: Split) -> None:
    with pytest.raises(DataError, match="5 crops would all be the same"):
        tiny(resize=16).predict(split.images[..., :20, :], crops=5)
    with pytest.raises(DataError, match="13 crops of 16x16 need images that are at least 16 pixels larger"):
        tiny().predict(split.images, crops=13)


def test_batch_size_does_not_matter(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    prepared = classifier.prepare(split)
    whole = classifier.activations(prepared)
    for batch_size in (1, 3, 7):
        torch.testing.assert_close(classifier.activations(prepared, batch_size=batch_size), whole, rtol=1e-5, atol=1e-6)
    assert classifier.activations(prepared.take(torch.arange(0))).shape == (0, 3)


def test_preparing_twice_changes_nothing(tiny: Tiny) -> None:
    classifier = tiny(in_channels=3)
    split = Split(torch.randint(0, 256, (2, 1, 50, 31), dtype=torch.uint8), torch.tensor([2, 1]))
    once = classifier.prepare(split)
    assert once.images.shape == (2, 3, 32, 20)
    assert torch.equal(once.labels, split.labels)
    assert torch.equal(classifier.prepare(once).images, once.images)


def test_the_mode_stays_as_it_was(tiny: Tiny, split: Split) -> None:
    classifier = tiny().train()
    classifier.predict(split.images)
    assert classifier.training
    classifier.eval().predict(split.images)
    assert not classifier.training


def test_another_precision(tiny: Tiny, split: Split) -> None:
    classifier = tiny()
    expected = classifier.predict(split.images).activation
    torch.testing.assert_close(
        classifier.double().predict(split.images).activation.float(), expected, rtol=1e-3, atol=1e-4
    )


def test_parts_that_do_not_fit() -> None:
    options = {"num_classes": 3, "image_size": 16, "first_channels": 16}
    with pytest.raises(ValueError, match="2 names for the 3 classes"):
        Classifier("hybrid32", options, Pipeline(crop=16), ("a", "b"))
    with pytest.raises(ValueError, match="crops to 32, the network takes 16"):
        Classifier("hybrid32", options, Pipeline(crop=32), ("a", "b", "c"))
