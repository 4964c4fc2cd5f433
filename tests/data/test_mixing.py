"""Mixup and CutMix: what is drawn, and what comes out."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.mixing import Mixing, draw_patch


@given(side=st.integers(1, 64), seed=st.integers(0, 2**32))
def test_patches_lie_in_the_image_and_have_the_rest_of_the_share(side: int, seed: int) -> None:
    (rows, columns), share = draw_patch(side, np.random.default_rng(seed))
    assert 0 <= rows.start <= rows.stop <= side
    assert 0 <= columns.start <= columns.stop <= side
    mask = torch.zeros(side, side)
    mask[rows, columns] = 1
    assert share == pytest.approx(1 - mask.mean().item())


def test_patches_are_of_all_sizes_and_everywhere() -> None:
    random = np.random.default_rng(0)
    total, shares = torch.zeros(32, 32), []
    for _ in range(4000):
        patch, share = draw_patch(32, random)
        total[patch] += 1 / 4000
        shares.append(share)
    assert min(shares) < 0.15
    assert max(shares) > 0.99
    # A pixel is covered if the middle of the square lies within half its width along both axes. The area is uniform.
    assert total[16, 16].item() == pytest.approx(1 / 2, abs=0.05)
    assert total[0, 0].item() == pytest.approx(1 / 8, abs=0.02)


def test_a_patch_is_the_partners() -> None:
    image, other = torch.zeros(3, 2, 8, 8), torch.ones(3, 2, 8, 8)
    for seed in range(20):
        mix = Mixing(cutmix=1.0).draw(3, 8, seed)
        mixed = mix.of(image, other)
        assert mixed.mean().item() == pytest.approx(1 - mix.share)
        assert mix.patch is not None
        assert (mixed[:, :, *mix.patch] == 1).all()
        assert (image == 0).all()
        assert sorted(mix.partner.tolist()) == [0, 1, 2]


def test_so_many_batches_have_patches() -> None:
    mixes = [Mixing(cutmix=0.25).draw(4, 32, seed) for seed in range(2000)]
    assert sum(mix.patch is not None for mix in mixes) / 2000 == pytest.approx(0.25, abs=0.03)
    assert all(mix.share == 1 for mix in mixes if mix.patch is None)
    blended = [Mixing(mixup=0.4, cutmix=0.25).draw(4, 32, seed) for seed in range(200)]
    assert all(0 < mix.share < 1 for mix in blended if mix.patch is None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mixup": -0.1}, "mixup is -0.1, expected a number of 0 or more"),
        ({"mixup": float("nan")}, "mixup is nan"),
        ({"cutmix": 1.5}, "cutmix is 1.5, expected a share of the batches, 0 to 1"),
        ({"cutmix": float("nan")}, "cutmix is nan"),
    ],
)
def test_what_cannot_be_meant(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Mixing(**values)
