"""Every setting of the runs that depends on the budget. This is the place to tune them.

What the tables vary (method, iterations, deviation, loss) is set in ``cells.py``, on top of what is said here. So is
``validation="none"``: settings were chosen on validation data before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torchcaps.bench.plan import Plan, full_plan, quick_plan
from torchcaps.data.catalog import BUILT_IN
from torchcaps.data.locate import find_folder
from torchcaps.data.types import DataError
from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import recipe

BudgetName = Literal["quick", "short", "long", "full"]


def with_root(found: Recipe, root: Path | None) -> Recipe:
    """The built-in set has its own place."""
    return found.with_fields(root=None if found.data.data == BUILT_IN else root)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much is spent on a reproduction."""

    name: BudgetName
    main: Callable[[str, str], Recipe]
    """The run of a set and a method in tables 1 and 3."""
    ablation: Callable[[str], Recipe]
    """The run of a method on smallNORB that table 2, the losses and the claims vary."""
    iterations: Callable[[str], Recipe]
    """The run of a method on smallNORB, with two iterations, to be tested with others."""
    objects: Callable[[str], Recipe] | None
    """The run of a method with both cameras of smallNORB, to be tested on new objects; none: table 1 has it."""
    viewpoints: Callable[[str], Recipe] | None
    """The run of a method on turntable, to be tested from new viewpoints; none: left to another budget."""
    cifar10_seeds: tuple[int, ...]
    """More than one make an ensemble."""
    seeds: tuple[int, ...] = (0,)
    """Of FREM and the CNN in table 1."""
    one_camera: Callable[[str], Recipe] | None = None
    """The run of FREM and of the CNN in table 1 with one camera, where the others have both."""
    deforms: bool = True
    """Whether FREM and the CNN of table 1 also learn from deformed images."""
    times: Plan
    """How the times of table 1 are measured."""
    adapt: Callable[[Recipe, Path | None], Recipe] = with_root
    """The last word on every run, the trials too; the path is the user's ``--root``."""


def short_main(data: str, method: str) -> Recipe:
    return recipe(f"{data}-{method}-short")


def short_ablation(method: str) -> Recipe:
    return recipe(f"smallnorb-{method}-small", resize=48, epochs=2)


# Settings as they were chosen on toys held out of training; class capsules after the CNN's convolutions, but where
# the paper's own network is asked about.
NORMED: dict[str, Any] = {"norm": "batch", "batch_size": 50, "rate": 2e-3, "routing_rate": 1.0}
CHOSEN: dict[str, Any] = NORMED | {"transform_std": 0.03, "loss": "cross-entropy"}
HEAD: dict[str, Any] = CHOSEN | {"class_shared": True, "class_coordinates": True, "model": "headcaps32"}
BOTH_CAMERAS: dict[str, Any] = {"camera": "both", "resize": 48}


def iterations(method: str) -> Recipe:
    return recipe(f"smallnorb-{method}-small", **NORMED, **BOTH_CAMERAS, transform_std=0.1, epochs=4)


def long_ablation(method: str) -> Recipe:
    return iterations(method).with_fields(epochs=2)


def head_or_cnn(method: str) -> dict[str, Any]:
    return HEAD if method != "cnn" else CHOSEN


def long_main(data: str, method: str) -> Recipe:
    """smallNORB with both cameras: FREM and the CNN on 64x64 crops, the slower methods on 32x32 ones."""
    network = head_or_cnn(method)
    if data != "smallnorb":
        return recipe(f"{data}-{method}-short", **network, epochs=6 if data == "mnist" else 12)
    if method in ("frms", "em"):
        return recipe(f"smallnorb-{method}-small", **network, **BOTH_CAMERAS, epochs=20)
    return recipe(f"smallnorb-{method}", size=64, resize=84, epochs=15, cutmix=0.0, unmixed=0.0)


def long_one_camera(method: str) -> Recipe:
    return recipe(f"smallnorb-{method}-small", **head_or_cnn(method), resize=48, epochs=20)


def objects(method: str) -> Recipe:
    return recipe(f"smallnorb-{method}")


def viewpoints(method: str) -> Recipe:
    return recipe(f"turntable-{method}", full=True, size=32, resize=48, epochs=12, cutmix=0.0, unmixed=0.0)


def full_main(data: str, method: str) -> Recipe:
    return recipe(f"{data}-{method}-paper")


def full_ablation(method: str) -> Recipe:
    return full_main("smallnorb", method)


def quick_main(data: str, method: str) -> Recipe:
    return recipe(f"{data}-{method}-small")


def quick_ablation(method: str) -> Recipe:
    return recipe(f"smallnorb-{method}-small", resize=48)


def rehearsed(found: Recipe, root: Path | None) -> Recipe:
    """A run of some seconds, on the built-in set where the recipe's own is not at hand (or large: smallNORB)."""
    data = found.data.data
    at_hand = data in ("mnist", "fashion-mnist", "cifar10") and is_found(data, root)
    return found.with_fields(
        data=data if at_hand else BUILT_IN,
        root=root if at_hand else None,
        full=False,
        model=found.network.model.replace("64", "32"),
        size=32,
        resize=found.images.resize,  # of 13 crops, too
        first_channels=16,
        epochs=1,
        average_epochs=min(1, found.optimisation.average_epochs),
        batch_size=8,
        images=16,
    )


def is_found(data: str, root: Path | None) -> bool:
    """Whether all files of a set are there."""
    try:
        find_folder(data, root)
    except DataError:
        return False
    return True


NATIVE = {"native": 1}  # a backend, and that it takes part in every round
BUDGETS: dict[str, Budget] = {
    "quick": Budget(
        name="quick",
        main=quick_main,
        ablation=quick_ablation,
        iterations=iterations,
        objects=objects,
        viewpoints=viewpoints,
        cifar10_seeds=(0, 1),
        times=replace(quick_plan(), batch=2, rounds=2, every=NATIVE),
        adapt=rehearsed,
    ),
    "short": Budget(
        name="short",
        main=short_main,
        ablation=short_ablation,
        iterations=iterations,
        objects=objects,
        viewpoints=viewpoints,
        cifar10_seeds=(0,),
        times=replace(full_plan(), every=NATIVE),
    ),
    "long": Budget(
        name="long",
        main=long_main,
        ablation=long_ablation,
        iterations=long_ablation,
        objects=None,
        viewpoints=None,
        cifar10_seeds=(0,),
        seeds=(0, 1),
        one_camera=long_one_camera,
        deforms=False,
        times=replace(full_plan(), every=NATIVE),
    ),
    "full": Budget(
        name="full",
        main=full_main,
        ablation=full_ablation,
        iterations=iterations,
        objects=objects,
        viewpoints=viewpoints,
        cifar10_seeds=(0, 1, 2, 3, 4),
        times=replace(full_plan(), every=NATIVE),
    ),
}
