"""Runs by name: each data set with each method, as we found it to work, as the paper has it, shorter, and quick."""

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
from torchcaps.train.recipe import TOYS, Recipe

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
    """Colour photographs: 256 channels first."""
    return Recipe(data="cifar10", first_channels=256)


SETS: dict[str, Callable[[], Recipe]] = {
    "smallnorb": smallnorb,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "turntable": turntable,
}
# Poses shrink by about 2 std / sqrt(inputs) a layer. With these starts about a hundredth of them is left for the class
# capsules, behind three layers or four. Smaller ones learn late; where poses arrive whole, a step of the class matrices
# moves the scores by so much that training falls back to chance.
STDS = {"hybrid32": 0.5, "hybrid64": 1.0}
RATES = {"hybrid32": 6e-3, "hybrid64": 2e-3, "cnn32": 2e-3, "cnn64": 2e-3}
FRMS_RATE = 0.5  # of these: at 6e-3 it fell to chance on Fashion-MNIST, in the third epoch
EPOCHS = {"smallnorb": 6, "mnist": 3, "fashion-mnist": 5, "cifar10": 5, "turntable": 24}  # of the learned settings


def as_it_is(paper: Recipe) -> Recipe:
    """The paper's own settings."""
    return paper


def learned(paper: Recipe) -> Recipe:
    """The paper's network and images, hours instead of days on two cores: a few epochs with one cycle of the rate.

    Capsules learn from the first steps on where matrices start larger, convolutions as PyTorch's do, and the rate of
    the matrices is higher. docs/results.md has what else was tried.
    """
    photographs = paper.data == "cifar10"
    return replace(
        paper,
        shift=4 if photographs else 0,  # as usual for this set; the paper says nothing of it
        flip=photographs,
        conv_init="torch",
        transform_std=STDS.get(paper.model, paper.transform_std),
        reconstruction=4 * paper.reconstruction,  # few steps to learn it in
        rate=RATES[paper.model] * (FRMS_RATE if paper.routing == "frms" else 1),
        routing_rate=4.0,
        schedule="one-cycle",
        epochs=EPOCHS[paper.data],
    )


NORMED_MODELS = {"hybrid64": "poolcaps32", "cnn64": "cnn32"}
NORMED_STD = 0.03  # poses have unit size: with larger matrices votes start so far apart that less carries over


def normed(paper: Recipe) -> Recipe:
    """smallNORB and turntable with both cameras, 32x32 crops of 48x48, and batch normalisation.

    Chosen on toys that were held out of training, most of it on one fold so far: docs/results.md has what was tried.
    """
    return replace(
        paper,
        camera="both",
        size=32,
        resize=48,
        model=NORMED_MODELS[paper.model],
        norm="batch",
        conv_init="torch",
        transform_std=NORMED_STD,
        loss="cross-entropy",
        reconstruction=0.0,
        rate=2e-3,
        schedule="one-cycle",
        epochs=20,
    )


def recommended(paper: Recipe) -> Recipe:
    """What we found to work best."""
    return normed(paper) if paper.data in TOYS else learned(paper)


def quick(paper: Recipe) -> Recipe:
    """Minutes: small images, small batches. smallNORB and turntable are cropped less, so that objects are whole."""
    small = replace(
        paper, size=32, resize=36 if paper.data in TOYS else None, model=paper.model.replace("64", "32"), batch_size=25
    )
    return replace(learned(small), epochs=12 if paper.data == "turntable" else 3)


VARIANTS = {"": recommended, "-paper": as_it_is, "-short": learned, "-quick": quick}


def with_method(recipe: Recipe, method: str) -> Recipe:
    """The recipe with a routing method, or with the baseline CNN in the network's place."""
    if method == "cnn":
        return replace(recipe, model=recipe.model.replace("hybrid", "cnn"), loss="cross-entropy", reconstruction=0.0)
    return replace(recipe, routing=method)


def list_recipes() -> list[str]:
    """Names of all recipes: data set, method and variant."""
    return [f"{data}-{method}{variant}" for data, method, variant in product(SETS, METHODS, VARIANTS)]


def recipe(name: str = DEFAULT, **changes: Any) -> Recipe:
    """A recipe by its name, with some of its fields changed.

    >>> recipe("smallnorb-frem-paper").epochs, recipe("mnist-cnn", epochs=5).model
    (50, 'cnn32')
    """
    if name not in list_recipes():
        raise OptionError(
            f"there is no recipe {name!r}: wanted SET-METHOD, SET-METHOD-paper, -short or -quick with a set of "
            f"{', '.join(SETS)} and a method of {', '.join(METHODS)}; a folder of images is --data FOLDER"
        )
    plain = name
    for suffix in filter(None, VARIANTS):
        plain = plain.removesuffix(suffix)
    data, _, method = plain.rpartition("-")
    vary = VARIANTS[name.removeprefix(plain)]
    return replace(vary(with_method(SETS[data](), method)), **{"name": name, **changes})


def for_own_images() -> Recipe:
    """Where recipes for a user's images start."""
    return replace(quick(Recipe()), resize=None)


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
    model = "hybrid64" if large else "hybrid32"
    training = max(1, int(0.7 * len(layout.files)))  # without test and validation images, about
    batch_size = min(25, max(2, training // 8))
    return replace(
        for_own_images(),
        name=Path(path).resolve().name,
        data=str(path),
        size=64 if large else 32,
        model=model,
        transform_std=STDS[model],
        rate=RATES[model],
        batch_size=batch_size,
        epochs=max(2, min(60, math.ceil(STEPS_FOR_A_FOLDER * batch_size / training))),
        weights="best",
    )
