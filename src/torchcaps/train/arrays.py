"""Training on a user's own arrays."""

import tempfile
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from torchcaps.classifier.classifier import Classifier
from torchcaps.data import ImageSet, Split, Splits
from torchcaps.data.arrays import Images, as_images, as_labels
from torchcaps.errors import OptionError
from torchcaps.train.assemble import make_classifier, make_pipeline, split_up
from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import for_own_images
from torchcaps.train.run import require_lightning

OF_STORED_SETS = ("name", "data", "root", "full", "camera", "viewpoint", "skip_bad", "checkpoint_every")


def fit(
    images: Images,
    labels: Tensor | npt.ArrayLike,
    *,
    progress: bool = True,
    **changes: Any,
) -> Classifier:
    """Train a capsule network on images and labels; its `predict` says what other images are.

    Images are uint8 or floats in [0, 1], ``[N, H, W]``, ``[N, C, H, W]`` or ``[N, H, W, C]``, of any size; labels are
    numbers or strings ``[N]``. ``changes`` are fields of the quick :class:`Recipe` that it follows: ``epochs=20``,
    ``size=64, model="hybrid64"``, ``routing="em"``. A tenth of each class is held out to watch the error on, and by
    default to choose the best epoch; ``validation="none"`` trains on everything.

    >>> classifier = fit(images, labels, epochs=20)  # doctest: +SKIP
    >>> classifier.predict(new_images).names  # doctest: +SKIP
    """
    require_lightning()
    if meaningless := [name for name in changes if name in OF_STORED_SETS]:
        raise OptionError(
            f"{', '.join(meaningless)}: for data sets and folders, not for arrays; leave it out, or use torchcaps.train"
        )
    pixels = as_images(images)
    label, classes = as_labels(labels, len(pixels))
    batch_size = min(25, max(1, len(pixels) // 4))
    weights = "last" if changes.get("validation") == "none" or changes.get("average_epochs") else "best"
    start = for_own_images().with_fields(name="arrays", data="arrays", epochs=12, batch_size=batch_size)
    recipe = start.with_fields(**{"weights": weights, **changes})
    split = Split(pixels, label)
    splits = split_up(ImageSet("arrays", classes, split, split), recipe.data)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        return _fit(recipe, splits, progress)


def _fit(recipe: Recipe, splits: Splits, progress: bool) -> Classifier:
    from torchcaps.train.checkpoints import Interrupted
    from torchcaps.train.loop import Resources, follow

    torch.manual_seed(recipe.optimisation.seed)
    classifier = make_classifier(recipe, splits, make_pipeline(recipe, splits))
    console = Console(quiet=not progress)
    with tempfile.TemporaryDirectory(prefix="torchcaps-") as folder:
        try:
            follow(
                recipe,
                classifier,
                splits.train,
                splits.validation,
                Path(folder),
                resources=Resources(),
                console=console,
            )
        except Interrupted:  # nothing to go on with: the folder goes
            raise KeyboardInterrupt from None
    return classifier
