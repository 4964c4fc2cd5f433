"""The paper's runs by name: each data set with each method, as the paper has it, and as a quick variant."""

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from torchcaps.data.folder_layout import scan
from torchcaps.errors import OptionError
from torchcaps.train.recipe import Recipe

DEFAULT = "turntable-frem-quick"
METHODS = ("frem", "frms", "em", "cnn")


def smallnorb() -> Recipe:
    """The paper's main experiment: random 64x64 crops of 96x96, brightness and contrast."""
    return Recipe(data="smallnorb", model="hybrid64", size=64)


def turntable() -> Recipe:
    """The built-in set in smallNORB's place."""
    return replace(smallnorb(), data="turntable")


def mnist() -> Recipe:
    """Digits, resized to 32x32."""
    return Recipe(data="mnist")


def fashion_mnist() -> Recipe:
    """Clothes, resized to 32x32."""
    return Recipe(data="fashion-mnist")


def cifar10() -> Recipe:
    """Colour photographs: 256 channels first, shifted and mirrored."""
    return Recipe(data="cifar10", first_channels=256, shift=4, flip=True)


SETS: dict[str, Callable[[], Recipe]] = {
    "smallnorb": smallnorb,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "turntable": turntable,
}


def quick(paper: Recipe) -> Recipe:
    """Minutes instead of days on two cores: small images, a few epochs with one cycle of a higher rate.

    Capsules learn from the first steps on where matrices start larger, convolutions as PyTorch's do, and the rate of
    the matrices is higher. smallNORB and turntable are cropped less, so that objects are whole.
    """
    toys = paper.data in ("smallnorb", "turntable")
    return replace(
        paper,
        size=32,
        resize=36 if toys else None,
        model=paper.model.replace("64", "32"),
        conv_init="torch",
        transform_std=0.5,
        reconstruction=4 * paper.reconstruction,  # few steps to learn it in
        batch_size=25,
        rate=6e-3 if paper.has_capsules else 2e-3,
        routing_rate=4.0,
        schedule="one-cycle",
        epochs=12 if paper.data == "turntable" else 3,
    )


def with_method(recipe: Recipe, method: str) -> Recipe:
    """The recipe with a routing method, or with the baseline CNN in the network's place."""
    if method == "cnn":
        return replace(recipe, model=recipe.model.replace("hybrid", "cnn"), loss="cross-entropy", reconstruction=0.0)
    return replace(recipe, routing=method)


def list_recipes() -> list[str]:
    """Names of all recipes: data set, method, and whether it is the quick variant."""
    return [f"{data}-{method}{variant}" for data, method, variant in product(SETS, METHODS, ("", "-quick"))]


def recipe(name: str = DEFAULT, **changes: Any) -> Recipe:
    """A recipe by its name, with some of its fields changed.

    >>> recipe("smallnorb-frem").epochs, recipe("mnist-cnn", epochs=3).model
    (50, 'cnn32')
    """
    if name not in list_recipes():
        raise OptionError(
            f"there is no recipe {name!r}: wanted SET-METHOD or SET-METHOD-quick with a set of {', '.join(SETS)} "
            f"and a method of {', '.join(METHODS)}; a folder of images is --data FOLDER"
        )
    plain = name.removesuffix("-quick")
    data, _, method = plain.rpartition("-")
    found = with_method(SETS[data](), method)
    found = found if plain == name else quick(found)
    return replace(found, **{"name": name, **changes})


STEPS_FOR_A_FOLDER = 1500


def folder_recipe(path: str | Path) -> Recipe:
    """A recipe for a user's own images: the network that fits their size, and as many epochs as they are few."""
    from torchcaps.data.decode import import_pillow

    layout = scan(Path(path).expanduser())
    sides = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in layout.files[:: max(1, len(layout.files) // 50)]:
            with suppress(Exception), import_pillow().open(file) as image:  # the header; loading says what is wrong
                sides.append(min(image.size))
    large = bool(sides) and sorted(sides)[len(sides) // 2] >= 64
    training = max(1, int(0.7 * len(layout.files)))  # without test and validation images, about
    batch_size = min(25, max(2, training // 8))
    return replace(
        quick(Recipe()),
        name=Path(path).resolve().name,
        data=str(path),
        resize=None,
        size=64 if large else 32,
        model="hybrid64" if large else "hybrid32",
        batch_size=batch_size,
        epochs=max(2, min(60, math.ceil(STEPS_FOR_A_FOLDER * batch_size / training))),
        weights="best",
    )
