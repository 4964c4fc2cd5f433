"""Training, validation and test: who is held out, and why. The test split is never touched."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchcaps.data.types import DataError, ImageSet, Split, Splits

Validation = Literal["auto", "instance", "stratified", "none"]
ViewpointFactor = Literal["azimuth", "elevation"]

# As smallNORB's files count them: azimuth in steps of 10 degrees (even numbers 0 to 34), elevation 0 to 8.
FAMILIAR_AZIMUTHS = (30, 32, 34, 0, 2, 4)  # 300, 320, 340, 0, 20, 40 degrees
FAMILIAR_ELEVATIONS = 3  # how many of the smallest


@dataclass(frozen=True, kw_only=True)
class ViewpointSplits(Splits):
    """Training on familiar viewpoints; ``test`` holds the novel ones, ``familiar`` the test images of the others."""

    familiar: Split


def make_splits(data: ImageSet, *, validation: Validation = "auto", fraction: float = 0.1, seed: int = 0) -> Splits:
    """Hold a validation split out of the training images.

    ``instance`` holds out whole objects of each class (at least one), so that validation asks what the test asks:
    objects never seen. ``stratified`` holds out a random part of each class. ``auto`` takes the set's own validation
    split where it has one, else held-out instances where they are known, else a stratified part. ``none`` trains on
    everything that is not test. Seeds 0, 1, 2 ... hold out others each time, until all have been held out once.
    """
    split, held, how = _validation(data.train, data.validation, validation, fraction, seed)
    notes = [data.note] if data.note else []
    return Splits(data.classes, split, held, data.test, note="; ".join([*notes, how]))


def viewpoint_splits(
    data: ImageSet,
    *,
    factor: ViewpointFactor = "azimuth",
    validation: Validation = "auto",
    fraction: float = 0.1,
    seed: int = 0,
) -> ViewpointSplits:
    """Novel viewpoints as in Hinton et al. 2018: train on six azimuths, or on the three smallest elevations.

    Validation comes from the training images, so it has familiar viewpoints only.
    """
    if factor not in ("azimuth", "elevation"):
        raise ValueError(f"factor is {factor!r}, expected 'azimuth' or 'elevation'")
    familiar = _familiar_viewpoints(data.train, factor)  # [K]
    seen = torch.isin(data.train.factor(factor), familiar)  # [N]
    tested = torch.isin(data.test.factor(factor), familiar)  # [M]
    needed = {"training images of familiar": seen, "test images of familiar": tested, "test images of novel": ~tested}
    for what, mask in needed.items():
        if not mask.any():
            raise DataError(f"{data.name} has no {what} {factor}s: expected {familiar.tolist()} as the familiar ones")
    train, held, how = _validation(data.train.take(_where(seen)), None, validation, fraction, seed)
    return ViewpointSplits(
        data.classes,
        train,
        held,
        data.test.take(_where(~tested)),
        note=f"{data.note}; " * bool(data.note)
        + f"training on {factor}s {familiar.tolist()}, test on the others; {how}",
        familiar=data.test.take(_where(tested)),
    )


def stratified_holdout(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices kept and held out, in ascending order: the fraction of each class, at random.

    At least one image of a class is held out and at least one kept; of a single image none is held out.
    """
    images = [_where(labels == label) for label in _distinct(labels)]  # [n] each
    held = torch.zeros(len(labels), dtype=torch.bool)
    for chosen in _hold_out(images, fraction, seed):
        held[chosen] = True
    return _where(~held), _where(held)


def instance_holdout(labels: Tensor, instances: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices kept and held out: of each class the fraction of its instances, at least one, at random."""
    classes = _distinct(labels)
    known = [torch.tensor(_distinct(instances[labels == label])) for label in classes]  # [K] each
    for label, of_class in zip(classes, known, strict=True):
        if len(of_class) < 2:
            raise DataError(
                f"class {label} has one training instance only, so none can be held out: use validation='stratified'"
            )
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label, chosen in zip(classes, _hold_out(known, fraction, seed), strict=True):
        held |= (labels == label) & torch.isin(instances, chosen)
    return _where(~held), _where(held)


def _hold_out(groups: list[Tensor], fraction: float, seed: int) -> list[Tensor]:
    """The fraction of each group, at random; with the next seed others, until all had their turn: cross-validation."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}, expected a number between 0 and 1")
    counts = [_held_count(len(group), fraction) for group in groups]
    turns = min((len(group) // count for group, count in zip(groups, counts, strict=True) if count), default=1)
    shuffle, turn = divmod(seed, turns)
    generator = torch.Generator().manual_seed(shuffle)
    orders = [group[torch.randperm(len(group), generator=generator)] for group in groups]
    return [order[turn * count : (turn + 1) * count] for order, count in zip(orders, counts, strict=True)]


def _validation(
    split: Split, own: Split | None, validation: Validation, fraction: float, seed: int
) -> tuple[Split, Split | None, str]:
    """Training split, validation split, and how it was made."""
    if validation not in ("auto", "instance", "stratified", "none"):
        raise ValueError(f"validation is {validation!r}, expected 'auto', 'instance', 'stratified' or 'none'")
    if validation == "none":
        return (split if own is None else joined(split, own)), None, "no validation: training on everything"
    if validation == "auto" and own is not None:
        return split, own, "validation: the set's own"
    if own is not None:
        split = joined(split, own)
    why = ""
    if validation == "auto":
        validation, why = _choose(split)
    if validation == "instance":
        kept, held = instance_holdout(split.labels, split.factor("instance"), fraction, seed)
        objects = set(zip(split.labels[held].tolist(), split.factors["instance"][held].tolist(), strict=True))
        how = f"validation: {len(objects)} held-out instances, {len(held)} images"
    else:
        kept, held = stratified_holdout(split.labels, fraction, seed)
        how = f"validation: {len(held)} images, {fraction:.0%} of each class at random"
    return split.take(kept), split.take(held), how + why


def _choose(split: Split) -> tuple[Literal["instance", "stratified"], str]:
    """By instance where that is possible, else stratified; and why."""
    if "instance" not in split.factors:
        return "stratified", ""
    instances = split.factors["instance"]
    if (instances < 0).any():
        return "stratified", " (not by instance: the set's instances are not known)"
    for label in _distinct(split.labels):
        if len(_distinct(instances[split.labels == label])) < 2:
            return "stratified", f" (not by instance: class {label} has one only)"
    return "instance", " (as in the test split, its objects are not in training)"


def _familiar_viewpoints(split: Split, factor: ViewpointFactor) -> Tensor:
    values = _distinct(split.factor(factor))
    if factor == "elevation":
        return torch.tensor(values[:FAMILIAR_ELEVATIONS])
    if any(value % 2 or value > 34 for value in values):
        raise DataError(f"azimuths are {values}, expected smallNORB's even numbers 0 to 34 (tens of degrees)")
    return torch.tensor(FAMILIAR_AZIMUTHS)


def joined(first: Split, second: Split) -> Split:
    """The images of both, with the factors that both have."""
    shared = first.factors.keys() & second.factors.keys()
    return Split(
        torch.cat([first.images, second.images]),
        torch.cat([first.labels, second.labels]),
        {name: torch.cat([first.factors[name], second.factors[name]]) for name in first.factors if name in shared},
        first.files + second.files if first.files and second.files else (),
    )


def _held_count(count: int, fraction: float) -> int:
    return min(max(1, round(fraction * count)), count - 1)


def _distinct(values: Tensor) -> list[int]:
    """In ascending order."""
    return sorted(set(values.tolist()))


def _where(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)
