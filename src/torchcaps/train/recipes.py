"""Runs by name: each data set with each method, as we found it to work, as the paper has it, shorter, small, quick."""

import math
from itertools import product
from pathlib import Path
from typing import Any

from torchcaps.data.folder_layout import scan
from torchcaps.data.own import typical_side
from torchcaps.data.specs import SPECS, spec_of
from torchcaps.errors import OptionError
from torchcaps.train.recipe import Recipe

DEFAULT_DATA = "turntable"
DEFAULT = f"{DEFAULT_DATA}-frem-quick"
METHODS = ("frem", "frms", "em", "cnn")


def paper_recipe(data: str) -> Recipe:
    """The paper's settings for a set: smallNORB in random 64x64 crops of 96x96, the others at 32x32."""
    spec = SPECS[data]
    return Recipe.of(data=data, model=f"hybrid{spec.size}", size=spec.size, first_channels=spec.first_channels)


# Poses shrink by about 2 std / sqrt(inputs) per layer. With these starts about a hundredth of them is left for the
# class capsules, after three layers or four. Smaller ones learn late; where poses arrive whole, a step of the class
# matrices moves the scores by so much that training falls back to chance.
STDS = {"hybrid32": 0.5, "hybrid64": 1.0}
RATES = {"hybrid32": 6e-3, "hybrid64": 2e-3, "cnn32": 2e-3, "cnn64": 2e-3}
FRMS_RATE = 0.5  # of these: at 6e-3 it fell to chance on Fashion-MNIST, in the third epoch


def as_it_is(paper: Recipe) -> Recipe:
    """The paper's own settings."""
    return paper


def learned(paper: Recipe) -> Recipe:
    """The paper's network and images, hours instead of days on two cores: a few epochs with one cycle of the rate.

    Capsules learn from the first steps on where matrices start larger, convolutions as PyTorch's do, and the rate of
    the matrices is higher. docs/results.md has what else was tried.
    """
    spec, network = spec_of(paper.data.data), paper.network
    return paper.with_fields(
        shift=4 if spec.moved else 0,
        flip=spec.moved,
        conv_init="torch",
        transform_std=STDS.get(network.model, network.transform_std),
        reconstruction=4 * paper.optimisation.reconstruction,  # few steps to learn it in
        rate=RATES[network.model] * (FRMS_RATE if network.routing == "frms" else 1),
        routing_rate=4.0,
        schedule="one-cycle",
        epochs=spec.epochs,
    )


NORMED_STD = 0.03  # poses have unit size: with larger matrices votes start so far apart that less carries over


def normed(paper: Recipe) -> Recipe:
    """Class capsules after a CNN's convolutions, batch normalisation and, where there are two, both cameras.

    Chosen on smallNORB's toys that were held out of training: docs/results.md has what was tried.
    """
    spec = spec_of(paper.data.data)
    return paper.with_fields(
        camera="both" if spec.stereo else paper.data.camera,
        size=32,
        shift=4 if spec.moved else 0,
        flip=spec.moved,
        model="headcaps32" if paper.network.has_capsules else "cnn32",
        norm="batch",
        conv_init="torch",
        transform_std=NORMED_STD,
        class_shared=True,
        class_coordinates=True,
        loss="cross-entropy",
        reconstruction=0.0,
        rate=2e-3,
        schedule="one-cycle",
    )


def recommended(paper: Recipe) -> Recipe:
    """What we found to work best; sets of single images keep the decoder, for its pictures."""
    found = normed(paper)
    if spec_of(paper.data.data).stereo:
        return found.with_fields(size=48, resize=64, cutmix=0.5, unmixed=0.25, epochs=15)
    reconstruction = learned(paper).optimisation.reconstruction
    return found.with_fields(reconstruction=reconstruction, epochs=6 if paper.data.data == "mnist" else 12)


def small(paper: Recipe) -> Recipe:
    """The paper's network at 32x32, as our trials vary it. smallNORB and turntable are cropped less: toys are whole."""
    small = paper.with_fields(
        size=32,
        resize=36 if spec_of(paper.data.data).stereo else None,
        model=paper.network.model.replace("64", "32"),
        batch_size=25,
    )
    return learned(small).with_fields(epochs=12 if paper.data.data == DEFAULT_DATA else 3)


def quick(paper: Recipe) -> Recipe:
    """Minutes: what we found to work best, on small images in small batches; with a decoder, for its pictures."""
    found = normed(paper)
    return found.with_fields(
        resize=36 if spec_of(paper.data.data).stereo else None,  # objects are whole
        reconstruction=4 * paper.optimisation.reconstruction,  # few steps to learn it in
        batch_size=25,
        epochs=12 if paper.data.data == DEFAULT_DATA else 3,
    )


VARIANTS = {"": recommended, "-paper": as_it_is, "-short": learned, "-small": small, "-quick": quick}


def with_method(recipe: Recipe, method: str) -> Recipe:
    """The recipe with a routing method, or with the baseline CNN in the network's place."""
    if method == "cnn":
        cnn = recipe.network.model.replace("hybrid", "cnn")
        return recipe.with_fields(model=cnn, loss="cross-entropy", reconstruction=0.0)
    return recipe.with_fields(routing=method)


def list_recipes() -> list[str]:
    """Names of all recipes: data set, method and variant."""
    return [f"{data}-{method}{variant}" for data, method, variant in product(SPECS, METHODS, VARIANTS)]


def recipe(name: str = DEFAULT, **changes: Any) -> Recipe:
    """A recipe by its name, with some of its fields changed.

    >>> recipe("smallnorb-frem-paper").optimisation.epochs, recipe("mnist-cnn", epochs=5).network.model
    (50, 'cnn32')
    """
    if name not in list_recipes():
        raise OptionError(
            f"there is no recipe {name!r}: expected SET-METHOD, SET-METHOD-paper, -short, -small or -quick with a set "
            f"of {', '.join(SPECS)} and a method of {', '.join(METHODS)}; a folder of images is --data FOLDER"
        )
    plain = name
    for suffix in filter(None, VARIANTS):
        plain = plain.removesuffix(suffix)
    data, _, method = plain.rpartition("-")
    vary = VARIANTS[name.removeprefix(plain)]
    return vary(with_method(paper_recipe(data), method)).with_fields(**{"name": name, **changes})


def for_own_images(side: int) -> Recipe:
    """Where recipes for a user's images start: the network that fits their shorter side."""
    size = 64 if side >= 64 else 32
    return quick(Recipe.of(data="folder")).with_fields(size=size, model=f"headcaps{size}")


STEPS_FOR_A_FOLDER = 1500


def folder_recipe(path: str | Path, *, side: int | None = None) -> Recipe:
    """A recipe for a user's own images: the network that fits their size, and as many epochs as they are few.

    ``side`` is their shorter side; default: that of most of them.
    """
    layout = scan(Path(path).expanduser())
    training = max(1, int(0.7 * len(layout.files)))  # without test and validation images, about
    batch_size = min(25, max(2, training // 8))
    return for_own_images(typical_side(layout.files) if side is None else side).with_fields(
        name=Path(path).resolve().name,
        data=str(path),
        batch_size=batch_size,
        epochs=max(2, min(60, math.ceil(STEPS_FOR_A_FOLDER * batch_size / training))),
        weights="best",
    )
