"""From images to batches."""

import dataclasses

import pytest
import torch
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.data.pipeline import Batch, Pipeline, mean_over_crops, preset
from torchcaps.data.types import Split


def random_images(count: int, channels: int, size: int, low: int = 0, high: int = 256) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(low, high, (count, channels, size, size), dtype=torch.uint8, generator=generator)


def train(pipeline: Pipeline, images: Tensor, seed: int = 1) -> Batch:
    return pipeline.train(images, torch.arange(len(images)), torch.Generator().manual_seed(seed))


def test_training_batch_against_one_sample_at_a_time() -> None:
    pipeline = Pipeline(crop=8, brightness=0.1, contrast=0.5, shift=2, flip=True, stretch=0.2, turn=10)
    images = random_images(20, 3, 12)
    batch = train(pipeline, images)
    draws = pipeline.draw(20, 12, 12, torch.Generator().manual_seed(1))
    images = torch.cat([transforms.warp(images[b : b + 1], draws.warp[b : b + 1]) for b in range(20)])
    for b in range(20):
        top, left = int(draws.top[b]) - 2, int(draws.left[b]) - 2
        clean = torch.zeros(3, 8, 8)
        for y in range(8):
            for x in range(8):
                from_y, from_x = top + y, left + (7 - x if draws.mirrored[b] else x)
                if 0 <= from_y < 12 and 0 <= from_x < 12:
                    clean[:, y, x] = images[b, :, from_y, from_x] / 255
        bright = clean + draws.brightness[b]
        jittered = ((bright - bright.mean()) * draws.contrast[b] + bright.mean()).clamp(0, 1)
        wanted = (jittered - jittered.mean()) / jittered.std(correction=0)
        torch.testing.assert_close(batch.image[b], wanted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(batch.target[b], transforms.resize(clean[None], 32, 32)[0])
    assert torch.equal(batch.label, torch.arange(20))


def test_draws_cover_their_ranges_evenly() -> None:
    pipeline = Pipeline(crop=64, brightness=32 / 255, contrast=0.5, flip=True)
    draws = pipeline.draw(33_000, 96, 98, torch.Generator().manual_seed(0))
    counts = draws.top.bincount()
    assert len(counts) == 33
    assert counts.min() > 850
    assert len(draws.left.bincount()) == 35
    assert draws.brightness.abs().max() <= 32 / 255
    assert draws.brightness.mean().abs() < 0.002
    assert 0.5 <= draws.contrast.min() < 0.501
    assert 1.499 < draws.contrast.max() <= 1.5
    assert 0.49 < draws.mirrored.float().mean() < 0.51


def test_warps_turn_scale_and_shear_within_their_ranges() -> None:
    generator = torch.Generator().manual_seed(0)
    turned = Pipeline(crop=8, turn=30).draw(10_000, 8, 8, generator).warp  # [B, 2, 2]
    torch.testing.assert_close(turned @ turned.mT, torch.eye(2).expand(10_000, 2, 2))
    degrees = torch.atan2(turned[:, 1, 0], turned[:, 0, 0]).rad2deg()
    assert 29.9 < degrees.max() <= 30.001
    assert -30.001 <= degrees.min() < -29.9
    stretched = Pipeline(crop=8, stretch=0.2).draw(10_000, 8, 8, generator).warp
    assert (stretched[:, 1, 0] == 0).all()
    shear = stretched[:, 0, 1] / stretched[:, 0, 0]
    for found in (stretched[:, 0, 0].log(), stretched[:, 1, 1].log(), shear):
        assert found.abs().max() <= 0.2001
        assert found.abs().mean() == pytest.approx(0.1, abs=0.003)
    assert torch.equal(Pipeline(crop=8).draw(2, 8, 8, generator).warp, torch.eye(2).expand(2, 2, 2))


def test_deforming_leaves_the_other_draws_as_they_were() -> None:
    plain = Pipeline(crop=8, brightness=0.1, contrast=0.5, flip=True)
    deforming = dataclasses.replace(plain, stretch=0.2, turn=10)
    first, second = (p.draw(10, 12, 12, torch.Generator().manual_seed(1)) for p in (plain, deforming))
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], second[:-1], strict=True))


def test_switching_one_augmentation_off_leaves_the_others() -> None:
    jittered = Pipeline(crop=8, brightness=0.1, contrast=0.5, flip=True)
    plain = dataclasses.replace(jittered, brightness=0.0, contrast=0.0)
    images = random_images(10, 1, 12)
    assert torch.equal(train(jittered, images).target, train(plain, images).target)


@pytest.mark.parametrize("standardise", ["image", "set"])
def test_what_jitter_changes_in_the_networks_input(standardise: str) -> None:
    """Per image: nothing but what the clamp leaves. By the set's statistics: everything."""
    plain = Pipeline(crop=8, standardise=standardise, mean=(0.5,), deviation=(0.3,))  # type: ignore[arg-type]
    jittered = dataclasses.replace(plain, brightness=32 / 255, contrast=0.5)
    mid_grey = random_images(50, 1, 8, 100, 156)  # jitter keeps it inside [0, 1]
    full_range = random_images(50, 1, 8)

    def change(images: Tensor) -> float:
        return (train(jittered, images).image - train(plain, images).image).abs().mean().item()

    if standardise == "image":
        assert change(mid_grey) < 1e-5
        assert 0.01 < change(full_range) < 0.15
    else:
        assert change(mid_grey) > 0.15
        assert change(full_range) > 0.2


def test_evaluation_takes_the_centre() -> None:
    pipeline = preset("smallnorb")
    images = random_images(3, 1, 96)
    batch = pipeline.evaluate(images, torch.arange(3))
    clean = images[:, :, 16:80, 16:80] / 255
    torch.testing.assert_close(batch.image, transforms.standardise(clean))
    torch.testing.assert_close(batch.target, clean.view(3, 1, 32, 2, 32, 2).mean((3, 5)))


def test_thirteen_crops() -> None:
    images = random_images(2, 1, 48)
    batch = Pipeline(crop=32, standardise="none").evaluate(images, torch.arange(2), crops=13)
    shown = (batch.image.view(2, 13, 1, 32, 32) * 255).round().to(torch.uint8)
    offsets = [(0, 0), *((down * step, right * step) for step in (1, 2, 3) for down in (-1, 1) for right in (-1, 1))]
    for place, (down, right) in enumerate(offsets):
        assert torch.equal(shown[:, place], images[:, :, 8 + down : 40 + down, 8 + right : 40 + right])


def test_standardised_by_channel() -> None:
    images = random_images(3, 2, 12)
    batch = Pipeline(crop=8, standardise="channel").evaluate(images, torch.zeros(3))
    clean = transforms.to_unit(images[:, :, 2:10, 2:10])
    for channel in range(2):
        alone = Pipeline(crop=8).evaluate(images[:, channel : channel + 1], torch.zeros(3))
        assert torch.equal(batch.image[:, channel : channel + 1], alone.image)
    assert not torch.equal(batch.image, transforms.standardise(clean))
    assert batch.image.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("crops", [5, 9])
def test_several_crops(crops: int) -> None:
    pipeline = Pipeline(crop=4, standardise="none")
    images = random_images(3, 2, 7)
    batch = pipeline.evaluate(images, torch.arange(3), crops=crops)
    assert batch.image.shape == (3 * crops, 2, 4, 4)
    of_each = batch.image.reshape(3, crops, 2, 4, 4)
    unit = images / 255
    torch.testing.assert_close(of_each[:, 0], unit[:, :, 1:5, 1:5])
    torch.testing.assert_close(of_each[:, 1], unit[:, :, :4, :4])
    torch.testing.assert_close(of_each[:, -1], unit[:, :, 3:, 3:])
    assert len({tuple(view.flatten().tolist()) for view in of_each[0]}) == crops
    assert torch.equal(batch.target, pipeline.evaluate(images, batch.label).target)
    scores = batch.image.flatten(1)
    torch.testing.assert_close(mean_over_crops(scores, batch), of_each.mean(1).flatten(1))
    assert mean_over_crops(scores[:3], batch) is not None


@pytest.mark.parametrize(
    ("name", "size", "channels", "side", "wanted"),
    [
        ("smallnorb", None, 1, 96, 64),
        ("turntable", 32, 2, 96, 32),
        ("mnist", None, 1, 28, 32),
        ("fashion-mnist", None, 1, 28, 32),
        ("cifar10", None, 3, 32, 32),
        ("holiday", 64, 3, 64, 64),
    ],
)
def test_presets(name: str, size: int | None, channels: int, side: int, wanted: int) -> None:
    pipeline = preset(name, size=size)
    images = pipeline.prepare(Split(random_images(4, channels, side), torch.arange(4))).images
    for batch in (train(pipeline, images), pipeline.evaluate(images, torch.arange(4))):
        assert batch.image.shape == (4, channels, wanted, wanted)
        assert batch.image.dtype == torch.float32
        assert batch.image.is_contiguous(memory_format=torch.channels_last)
        assert batch.target.shape == (4, channels, 32, 32)
        assert batch.target.min() >= 0
        assert batch.target.max() <= 1


def test_preset_sizes() -> None:
    assert preset("smallnorb").resize == 96
    assert preset("smallnorb", size=32).resize == 48
    assert preset("cifar10", shift=4, flip=True) == Pipeline(crop=32, resize=32, shift=4, flip=True)


def test_statistics_of_the_training_set() -> None:
    split = Split(random_images(200, 1, 28), torch.zeros(200, dtype=torch.int64))
    pipeline = preset("mnist", standardise="set")
    with pytest.raises(ValueError, match=r"with_statistics\(train\)"):
        pipeline.evaluate(pipeline.prepare(split).images, split.labels)
    image = pipeline.with_statistics(split).evaluate(pipeline.prepare(split).images, split.labels).image
    assert image.mean().item() == pytest.approx(0, abs=1e-4)
    assert image.std().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop": 0}, "crop is 0"),
        ({"crop": 64, "resize": 48}, "resize is 48, too small"),
        ({"crop": 8, "contrast": 2.0}, "contrast up to 1"),
        ({"crop": 8, "shift": -1}, "none below 0"),
        ({"crop": 8, "stretch": -0.1}, "stretch -0.1, turn 0.0: expected 0 to 1"),
        ({"crop": 8.0}, "crop is 8.0, expected a whole number"),
        ({"crop": 8, "resize": True}, "resize is True, expected a whole number"),
        ({"crop": 8, "brightness": float("inf")}, "brightness is inf, expected a finite number"),
        ({"crop": 8, "flip": "no"}, "flip is 'no', expected True or False"),
        ({"crop": 8, "mean": (0.5,), "deviation": (0.0,)}, "standard deviation is .0.0., expected numbers above 0"),
        ({"crop": 8, "turn": 200.0}, "turn 200.0: expected 0 to 1, and 0 to 180 degrees"),
        ({"crop": 8, "standardise": "batch"}, "standardise is 'batch'"),
        ({"crop": 8, "mean": (0.5,)}, "mean of 1 channels, standard deviation of 0"),
    ],
)
def test_wrong_settings(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(**fields)  # type: ignore[arg-type]


def test_wrong_images() -> None:
    with pytest.raises(ValueError, match=r"images are torch.float32 \[2, 1, 8, 8\], expected uint8"):
        Pipeline(crop=8).evaluate(torch.zeros(2, 1, 8, 8), torch.zeros(2))
    with pytest.raises(ValueError, match="prepare the split first"):
        preset("mnist").evaluate(random_images(1, 1, 28), torch.zeros(1))
    with pytest.raises(ValueError, match="crops is 3, expected one of 1, 5, 9, 13"):
        Pipeline(crop=4).evaluate(random_images(1, 1, 8), torch.zeros(1), crops=3)
    with pytest.raises(ValueError, match="5 crops would all be the same"):
        Pipeline(crop=8).evaluate(random_images(1, 1, 8), torch.zeros(1), crops=5)
