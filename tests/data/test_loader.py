"""Every batch is a function of (seed, epoch, batch), whoever makes it."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps.data.loader import BatchLoader, generator_for
from torchcaps.data.mixing import MixedBatch, Mixing
from torchcaps.data.pipeline import Batch, Pipeline, Standardise
from torchcaps.data.types import Split

PIPELINE = Pipeline(crop=5, brightness=0.1, contrast=0.5, shift=1, flip=True, stretch=0.2, turn=10)
SEEDS = st.integers(-(2**70), 2**70)
MIXINGS = st.sampled_from([Mixing(mixup=a) for a in (0.01, 0.2, 1.0, 8.0)] + [Mixing(cutmix=1.0)])


def numbered(count: int, channels: int = 1, side: int = 7) -> Split:
    """Images that differ; the label is the place."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator)
    return Split(images, torch.arange(count))


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def all_same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))


@given(
    per_rank=st.integers(1, 4),
    world_size=st.integers(1, 4),
    batches=st.integers(1, 4),
    rest=st.integers(0, 3),
    channels=st.integers(1, 3),
    seed=SEEDS,
    epoch=st.integers(0, 5),
)
@settings(deadline=None, max_examples=40)
def test_the_ranks_parts_are_the_whole_batch(
    per_rank: int, world_size: int, batches: int, rest: int, channels: int, seed: int, epoch: int
) -> None:
    batch_size = per_rank * world_size
    split = numbered(batches * batch_size + rest % batch_size, channels)

    def epoch_of(rank: int, world_size: int) -> list[Batch]:
        loader = BatchLoader(
            split, PIPELINE, batch_size=batch_size, train=True, seed=seed, rank=rank, world_size=world_size
        )
        loader.set_epoch(epoch)
        made = list(loader)
        assert len(made) == batches
        return made

    whole = epoch_of(0, 1)
    parts = zip(*(epoch_of(rank, world_size) for rank in range(world_size)), strict=True)
    joined = [Batch(*(torch.cat(tensors) for tensors in zip(*of_batch, strict=True))) for of_batch in parts]
    assert all_same(joined, whole)


@pytest.mark.parametrize("standardise", ["image", "channel"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "side", "crop"), [(1, 40, 32), (3, 40, 32), (1, 200, 190), (3, 150, 140)])
def test_parts_are_exact_at_real_sizes_and_with_threads(
    threads: int, channels: int, side: int, crop: int, standardise: Standardise
) -> None:
    """Torch splits large sums over threads; parts of one sample must still round as the whole batch does."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        pipeline = Pipeline(crop=crop, brightness=0.1, contrast=0.5, stretch=0.2, turn=10, standardise=standardise)
        split = numbered(3, channels, side)
        options = {"batch_size": 3, "train": True}
        (whole,) = BatchLoader(split, pipeline, **options)  # type: ignore[arg-type]
        for rank in range(3):
            (part,) = BatchLoader(split, pipeline, rank=rank, world_size=3, **options)  # type: ignore[arg-type]
            assert same(part, Batch(*(values[rank : rank + 1] for values in whole)))
    finally:
        torch.set_num_threads(before)


@given(per_rank=st.integers(1, 4), world_size=st.integers(1, 4), channels=st.integers(1, 3), seed=SEEDS, mixing=MIXINGS)
@settings(deadline=None, max_examples=60)
def test_mixed_parts_are_the_whole_mixed_batch(
    per_rank: int, world_size: int, channels: int, seed: int, mixing: Mixing
) -> None:
    batch_size = per_rank * world_size
    split = numbered(3 * batch_size, channels)

    def epoch_of(rank: int, world_size: int, mixing: Mixing | None) -> list[Batch | MixedBatch]:
        options = {"seed": seed, "rank": rank, "world_size": world_size, "mixing": mixing}
        return list(BatchLoader(split, PIPELINE, batch_size=batch_size, train=True, **options))  # type: ignore[arg-type]

    whole, clean = epoch_of(0, 1, mixing), epoch_of(0, 1, None)
    parts = zip(*(epoch_of(rank, world_size, mixing) for rank in range(world_size)), strict=True)
    for mixed, plain, of_batch in zip(whole, clean, parts, strict=True):
        assert isinstance(mixed, MixedBatch)
        assert isinstance(plain, Batch)
        for place, values in enumerate(mixed[:3]):
            assert torch.equal(torch.cat([part[place] for part in of_batch]), values)  # type: ignore[misc]
        assert all(part[3] == mixed.share for part in of_batch)  # type: ignore[misc]
        # The labels are places in the split: by them the images are found that were mixed.
        assert torch.equal(mixed.label, plain.label)
        assert sorted(mixed.other_label.tolist()) == sorted(plain.label.tolist())
        second = torch.stack([plain.image[plain.label.tolist().index(label)] for label in mixed.other_label.tolist()])
        if mixing.cutmix:
            of_first = (mixed.image == plain.image).all(1)  # [B, S, S]
            assert (of_first | (mixed.image == second).all(1)).all()
            of_two = mixed.label != mixed.other_label  # [B]
            torch.testing.assert_close(
                of_first[of_two].float().mean((1, 2)), torch.full_like(mixed.image[of_two, 0, 0, 0], mixed.share)
            )
        else:
            torch.testing.assert_close(mixed.image, mixed.share * plain.image + (1 - mixed.share) * second)
        assert mixed.image.is_contiguous(memory_format=torch.channels_last)


def test_shares_are_of_the_beta_distribution() -> None:
    loader = BatchLoader(numbered(400), PIPELINE, batch_size=2, train=True, mixing=Mixing(mixup=0.3))
    shares = torch.tensor(
        [batch.share for _ in range(5) for batch in loader if isinstance(batch, MixedBatch)], dtype=torch.float64
    )
    assert len(set(shares.tolist())) == len(shares) == 1000
    assert shares.mean().item() == pytest.approx(0.5, abs=0.05)
    assert shares.var().item() == pytest.approx(0.25 / (2 * 0.3 + 1), rel=0.1)  # of Beta(a, a)


def test_last_epochs_are_not_mixed() -> None:
    def loader(mixing: Mixing | None) -> BatchLoader:
        return BatchLoader(numbered(8), PIPELINE, batch_size=4, train=True, mixing=mixing)

    mixed, plain = loader(Mixing(mixup=0.4, epochs=2)), loader(None)
    for epoch in range(4):
        for one, other in zip(mixed, plain, strict=True):
            assert isinstance(one, MixedBatch if epoch < 2 else Batch)
            assert torch.equal(one.image, other.image) == (epoch >= 2)


def test_mixed_batches_go_on_from_a_state() -> None:
    def new() -> BatchLoader:
        return BatchLoader(
            numbered(20), PIPELINE, batch_size=4, train=True, seed=3, mixing=Mixing(mixup=0.4, cutmix=0.5)
        )

    first, second = new(), new()
    batches = iter(first)
    next(batches), next(batches)
    second.load_state_dict(first.state_dict())
    for wanted, made in zip(batches, second, strict=True):
        assert torch.equal(made.image, wanted.image)
        assert torch.equal(made.label, wanted.label)
        assert made[3] == wanted[3]  # type: ignore[misc]


@given(
    count=st.integers(4, 30), batch_size=st.integers(1, 4), seed=SEEDS, taken=st.integers(0, 40), train=st.booleans()
)
@settings(deadline=None, max_examples=40)
def test_a_state_continues_with_the_same_batches(
    count: int, batch_size: int, seed: int, taken: int, train: bool
) -> None:
    def new() -> BatchLoader:
        return BatchLoader(numbered(count), PIPELINE, batch_size=batch_size, train=train, seed=seed)

    first = new()
    per_epoch = len(first)
    epochs = taken // per_epoch + 2
    everything = [batch for _ in range(epochs) for batch in first]

    second, seen = new(), 0
    state = second.state_dict()
    while seen < taken:
        for _ in second:
            seen += 1
            if seen == taken:
                state = copy.deepcopy(second.state_dict())
                break

    third = new()
    third.load_state_dict(state)
    rest = [batch for _ in range(state["epoch"], epochs) for batch in third]
    assert all_same(rest, everything[taken:])


def test_a_state_continues_on_another_number_of_processes() -> None:
    options = {"batch_size": 4, "train": True, "seed": 3}
    whole = BatchLoader(numbered(20), PIPELINE, **options)  # type: ignore[arg-type]
    batches = iter(whole)
    next(batches), next(batches)
    part = BatchLoader(numbered(20), PIPELINE, rank=1, world_size=2, **options)  # type: ignore[arg-type]
    part.load_state_dict(whole.state_dict())
    for wanted, made in zip(batches, part, strict=True):
        assert same(made, Batch(*(values[2:] for values in wanted)))


def test_state_and_epoch_may_come_after_iter() -> None:
    """Lightning makes its iterator first."""
    loader = BatchLoader(numbered(12), PIPELINE, batch_size=4, train=True)
    batches = list(loader) + list(loader)
    late = BatchLoader(numbered(12), PIPELINE, batch_size=4, train=True)
    iterator = iter(late)
    late.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": 1})
    late.set_epoch(1)  # the trainer says again where it is: the place in the epoch stays
    assert all_same(list(iterator), batches[4:])


def test_the_state_after_the_last_batch_is_the_next_epoch() -> None:
    """Lightning does not ask for one batch more than there are."""
    loader = BatchLoader(numbered(12), PIPELINE, batch_size=4, train=True)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (1, 0)


def test_an_abandoned_epoch_starts_again() -> None:
    loader = BatchLoader(numbered(12), PIPELINE, batch_size=4, train=True)
    first = next(iter(loader))
    assert same(first, next(iter(loader)))


@given(count=st.integers(1, 40), batch_size=st.integers(1, 9), seed=SEEDS)
@settings(deadline=None, max_examples=40)
def test_an_epoch_has_each_sample_once(count: int, batch_size: int, seed: int) -> None:
    loader = BatchLoader(numbered(count), PIPELINE, batch_size=batch_size, train=True, seed=seed, drop_last=False)
    batches = list(loader)
    assert len(batches) == len(loader)
    assert sorted(torch.cat([batch.label for batch in batches]).tolist()) == list(range(count))
    assert all(len(batch.label) == batch_size for batch in batches[:-1])


@given(count=st.integers(0, 40), batch_size=st.integers(1, 9), world_size=st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_evaluation_has_each_sample_once_across_ranks(count: int, batch_size: int, world_size: int) -> None:
    labels = []
    for rank in range(world_size):
        loader = BatchLoader(
            numbered(count), PIPELINE, batch_size=batch_size, train=False, rank=rank, world_size=world_size
        )
        batches = list(loader)
        assert len(batches) == len(loader)
        if world_size == 1:
            assert all(len(batch.label) for batch in batches)
        labels += [label for batch in batches for label in batch.label.tolist()]
    assert sorted(labels) == list(range(count))
    if world_size == 1:
        assert labels == list(range(count))


def test_seeds_epochs_and_batches_differ() -> None:
    loader = BatchLoader(numbered(40), PIPELINE, batch_size=20, train=True, seed=0)
    first, second = list(loader), list(loader)
    assert not torch.equal(first[0].label, second[0].label)
    other = list(BatchLoader(numbered(40), PIPELINE, batch_size=20, train=True, seed=1))
    assert not torch.equal(first[0].label, other[0].label)
    keys = [("order", 0, 1), ("batch", 0, 1), ("batch", 0, 1, 0), ("batch", 1, 0, 0), ("batch", 0, 0, 1)]
    assert len({torch.rand(1, generator=generator_for(*key)).item() for key in keys}) == len(keys)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    list(BatchLoader(numbered(8), PIPELINE, batch_size=4, train=True))
    assert torch.equal(before, torch.get_rng_state())


def test_splits_are_prepared() -> None:
    loader = BatchLoader(numbered(4, side=28), Pipeline(crop=32, resize=32), batch_size=4, train=False, device="cpu")
    assert next(iter(loader)).image.shape == (4, 1, 32, 32)


def test_several_crops() -> None:
    loader = BatchLoader(numbered(3), Pipeline(crop=5), batch_size=2, train=False, crops=5)
    assert [len(batch.image) for batch in loader] == [10, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank 2"),
        ({"batch_size": 50}, "batch_size is 50, but there are 10 training images: expected at most 10"),
        ({"batch_size": 5, "world_size": 2}, "batch_size is 5, for 2 processes: expected a multiple of 2"),
        (
            {"batch_size": 6, "world_size": 3, "drop_last": False},
            "batches of 6 and a last one of 4 cannot be divided among 3 processes",
        ),
        ({"batch_size": 5, "crops": 5}, "not for training"),
    ],
)
def test_wrong_arguments(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchLoader(numbered(10), PIPELINE, train=True, **options)  # type: ignore[arg-type]


def test_states_of_other_loaders_are_refused() -> None:
    loader = BatchLoader(numbered(10), PIPELINE, batch_size=5, train=True)
    state = loader.state_dict()
    with pytest.raises(ValueError, match="with samples 11, this one has 10"):
        loader.load_state_dict({**state, "samples": 11})
    with pytest.raises(ValueError, match="with seed None, this one has 0"):
        loader.load_state_dict({"epoch": 0, "batch": 0, "samples": 10, "batch_size": 5})
    with pytest.raises(ValueError, match="batch 2; an epoch here has 2 batches"):
        loader.load_state_dict({**state, "batch": 2})
