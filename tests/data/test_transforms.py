"""Batched transforms against slow, obvious ones, one sample at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.data.types import Split


def random_images(count: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


def slow_jitter(image: np.ndarray, brightness: float, contrast: float) -> np.ndarray:
    brighter = image + brightness
    mean = brighter.mean()
    return np.minimum(np.maximum((brighter - mean) * contrast + mean, 0), 1)


def slow_warp(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """One channel ``[H, W]``: each pixel from the four around the place that the matrix leads to."""
    height, width = image.shape
    warped = np.empty(image.shape)
    for row in range(height):
        for column in range(width):
            right, down = matrix @ [column - (width - 1) / 2, row - (height - 1) / 2]
            x = min(max(right + (width - 1) / 2, 0), width - 1)
            y = min(max(down + (height - 1) / 2, 0), height - 1)
            left, top = min(int(x), max(width - 2, 0)), min(int(y), max(height - 2, 0))
            right_side, below = min(left + 1, width - 1), min(top + 1, height - 1)
            upper = image[top, left] * (1 - (x - left)) + image[top, right_side] * (x - left)
            lower = image[below, left] * (1 - (x - left)) + image[below, right_side] * (x - left)
            warped[row, column] = upper * (1 - (y - top)) + lower * (y - top)
    return warped


def slow_standardise(image: np.ndarray) -> np.ndarray:
    deviation = image.std()
    return np.zeros_like(image) if deviation == 0 else (image - image.mean()) / deviation


@given(
    count=st.integers(1, 5),
    channels=st.integers(1, 3),
    size=st.integers(1, 6),
    room=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    data=st.data(),
)
@settings(deadline=None, max_examples=50)
def test_crop(count: int, channels: int, size: int, room: tuple[int, int], data: st.DataObject) -> None:
    images = random_images(count, channels, size + room[0], size + room[1])
    top = data.draw(st.lists(st.integers(0, room[0]), min_size=count, max_size=count))
    left = data.draw(st.lists(st.integers(0, room[1]), min_size=count, max_size=count))
    cropped = transforms.crop(images, torch.tensor(top), torch.tensor(left), size)
    assert cropped.dtype == torch.uint8
    for b in range(count):
        wanted = images[b, :, top[b] : top[b] + size, left[b] : left[b] + size]
        assert torch.equal(cropped[b], wanted)


def test_centre_crop() -> None:
    images = random_images(2, 1, 96, 97)
    assert torch.equal(transforms.centre_crop(images, 64), images[:, :, 16:80, 16:80])


@pytest.mark.parametrize("order", [[0], [1, 0], [0, 1, 2]], ids=["grey", "pair", "colours"])
def test_flip(order: list[int]) -> None:
    images = random_images(3, len(order), 4, 5)
    flipped = transforms.flip(images, torch.tensor([True, False, True]))
    assert torch.equal(flipped[1], images[1])
    for b in (0, 2):
        for x in range(5):
            assert torch.equal(flipped[b, :, :, x], images[b, order, :, 4 - x])


def test_a_mirrored_pair_keeps_its_depth() -> None:
    """What is near is further to the right for the left camera; in the mirror, too."""
    pair = torch.zeros(1, 2, 1, 8, dtype=torch.uint8)
    pair[0, 0, 0, 5] = pair[0, 1, 0, 3] = 255
    left, right = transforms.flip(pair, torch.tensor([True]))[0, :, 0].argmax(1)
    assert left - right == 5 - 3


@given(
    count=st.integers(1, 3),
    channels=st.integers(1, 2),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    matrix=st.lists(st.floats(-2, 2, width=32), min_size=12, max_size=12),
)
@settings(deadline=None, max_examples=50)
def test_warp(count: int, channels: int, height: int, width: int, matrix: list[float]) -> None:
    matrices = torch.tensor(matrix).view(3, 2, 2)[:count]
    images = random_images(count, channels, height, width)
    warped = transforms.warp(images.float(), matrices)
    for b in range(count):
        for c in range(channels):
            wanted = slow_warp(images[b, c].double().numpy(), matrices[b].double().numpy())
            np.testing.assert_allclose(warped[b, c].numpy(), wanted, atol=2e-3)
    whole = transforms.warp(images, matrices)
    assert whole.dtype == torch.uint8
    assert torch.equal(whole, warped.round().to(torch.uint8))


def test_warps_with_known_answers() -> None:
    images = random_images(1, 2, 5, 5)
    assert torch.equal(transforms.warp(images, torch.eye(2).unsqueeze(0)), images)
    mirror, quarter = torch.tensor([[[-1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]])
    assert torch.equal(transforms.warp(images, mirror.unsqueeze(0)), images.flip(-1))
    for dtype in (torch.float16, torch.float64):
        assert torch.equal(transforms.warp(images.to(dtype), mirror.unsqueeze(0).double()), images.flip(-1).to(dtype))
    # The new right end, (1, 0), comes from the old bottom, (0, 1).
    assert torch.equal(transforms.warp(images, quarter.unsqueeze(0)), images.rot90(1, (2, 3)))


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter(channels: int) -> None:
    images = transforms.to_unit(random_images(8, channels, 6, 7))
    brightness, contrast = torch.linspace(-0.3, 0.3, 8), torch.linspace(0.0, 2.0, 8)
    jittered = transforms.jitter(images, brightness, contrast)
    assert jittered.min() >= 0
    assert jittered.max() <= 1
    for b in range(8):
        wanted = slow_jitter(images[b].double().numpy(), brightness[b].item(), contrast[b].item())
        np.testing.assert_allclose(jittered[b].numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_standardise(channels: int) -> None:
    images = transforms.to_unit(random_images(4, channels, 9, 5))
    standardised = transforms.standardise(images)
    for b in range(4):
        np.testing.assert_allclose(standardised[b].numpy(), slow_standardise(images[b].double().numpy()), atol=1e-5)


@given(
    level=st.integers(0, 255), brightness=st.floats(-0.2, 0.2), contrast=st.floats(0.5, 1.5), size=st.integers(1, 70)
)
@settings(deadline=None, max_examples=50)
def test_a_constant_image_gives_zeros(level: int, brightness: float, contrast: float, size: int) -> None:
    images = transforms.to_unit(torch.full((2, 3, size, size), level, dtype=torch.uint8))
    jittered = transforms.jitter(images, torch.full((2,), brightness), torch.full((2,), contrast))
    assert not transforms.standardise(images).any()
    assert not transforms.standardise(jittered).any()


def test_one_pixel_that_differs_by_one_is_not_constant() -> None:
    images = torch.full((1, 3, 96, 96), 130, dtype=torch.uint8)
    images[0, 0, 0, 0] = 131
    unit = transforms.to_unit(images)
    jittered = transforms.jitter(unit, torch.tensor([0.1]), torch.tensor([0.5]))
    assert transforms.standardise(jittered).square().mean().item() == pytest.approx(1, rel=0.02)


def test_standardise_channels() -> None:
    images = torch.rand(4, 3, 6, 5) * torch.tensor([1.0, 0.1, 0.01]).view(3, 1, 1)
    images[1, 2] = 0.3  # one constant channel in an image that is not
    standardised = transforms.standardise_channels(images.contiguous(memory_format=torch.channels_last))
    assert not standardised[1, 2].any()
    for b in range(4):
        for c in range(3):
            if (b, c) != (1, 2):
                wanted = slow_standardise(images[b, c : c + 1].double().numpy())
                np.testing.assert_allclose(standardised[b, c : c + 1].numpy(), wanted, atol=1e-5)
    assert transforms.standardise_channels(images[:0]).shape == (0, 3, 6, 5)


def test_standardise_by_statistics() -> None:
    images = transforms.to_unit(random_images(2, 2, 3, 3))
    standardised = transforms.standardise_by(images, (0.25, 0.5), (0.5, 2.0))
    torch.testing.assert_close(standardised[:, 0], (images[:, 0] - 0.25) / 0.5)
    torch.testing.assert_close(standardised[:, 1], (images[:, 1] - 0.5) / 2)
    with pytest.raises(ValueError, match="statistics of 1 channels for images of 2"):
        transforms.standardise_by(images, (0.5,), (0.5,))


def slow_resize(image: np.ndarray, size: int) -> np.ndarray:
    """Each new pixel is a mean under a triangle as wide as the scale; along columns, then along rows."""
    for _ in range(2):
        old = image.shape[0]
        scale = old / size
        wide = max(scale, 1.0)
        rows = []
        for i in range(size):
            centre = (i + 0.5) * scale
            weights = np.array([max(0.0, 1 - abs(y + 0.5 - centre) / wide) for y in range(old)])
            rows.append((weights / weights.sum()) @ image)
        image = np.array(rows).T
    return image


@pytest.mark.parametrize(("old", "new"), [(28, 32), (48, 32), (20, 32), (33, 8)])
def test_bilinear_resize(old: int, new: int) -> None:
    images = transforms.to_unit(random_images(2, 3, old, old))
    resized = transforms.resize(images, new, new)
    for b in range(2):
        for c in range(3):
            np.testing.assert_allclose(
                resized[b, c].numpy(), slow_resize(images[b, c].double().numpy(), new), atol=1e-5
            )


def test_resize_by_a_whole_factor_takes_the_mean_of_blocks() -> None:
    images = transforms.to_unit(random_images(2, 2, 12, 8))
    resized = transforms.resize(images, 4, 4)
    for y in range(4):
        for x in range(4):
            block = images[:, :, 3 * y : 3 * y + 3, 2 * x : 2 * x + 2]
            torch.testing.assert_close(resized[:, :, y, x], block.mean((2, 3)))


def test_a_split_is_resized_in_chunks() -> None:
    split = Split(random_images(7, 1, 96, 96), torch.arange(7), {"instance": torch.arange(7)})
    resized = transforms.resize_split(split, 48, chunk=3)
    wanted = split.images.double().view(7, 1, 48, 2, 48, 2).mean((3, 5)).round()
    assert torch.equal(resized.images.double(), wanted)
    assert resized.labels is split.labels
    assert resized.factors is split.factors
    assert transforms.resize_split(resized, 48) is resized


def test_the_shorter_side_is_resized() -> None:
    split = Split(random_images(2, 3, 30, 60), torch.zeros(2, dtype=torch.int64))
    assert transforms.resize_split(split, 20).images.shape == (2, 3, 20, 40)


def test_channel_statistics() -> None:
    split = Split(random_images(50, 3, 8, 8), torch.zeros(50, dtype=torch.int64))
    split.images[:, 2] = 7
    mean, deviation = transforms.channel_statistics(split, chunk=16)
    unit = split.images.double() / 255
    assert mean == pytest.approx(unit.mean((0, 2, 3)).tolist())
    assert deviation[:2] == pytest.approx(unit.std((0, 2, 3), correction=0)[:2].tolist())
    assert deviation[2] == 1


def test_too_small_for_the_crop() -> None:
    with pytest.raises(ValueError, match="images are 28x28, too small for a crop of 32x32: set resize to 32"):
        transforms.centre_crop(random_images(1, 1, 28, 28), 32)
