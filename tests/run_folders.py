"""Run folders as training leaves them, without training; and commands called as the command line does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tyro

from torchcaps.classifier import save
from torchcaps.train.assemble import load_data, make_classifier, make_pipeline
from torchcaps.train.loop import Resources
from torchcaps.train.recipe import Recipe
from torchcaps.train.run import describe


def call(command: Callable[..., None], *arguments: object) -> None:
    """As the command line does."""
    tyro.cli(command, args=[str(argument) for argument in arguments])


def make_run(folder: Path, photos: Path, **fields: Any) -> Path:
    """A run folder as training leaves it, with weights from the start."""
    options = {"size": 16, "first_channels": 16, "conv_init": "torch", "routing": "em", **fields}
    recipe = Recipe.of(data=str(photos), **options)
    splits = load_data(recipe)
    torch.manual_seed(recipe.optimisation.seed)
    save(make_classifier(recipe, splits, make_pipeline(recipe, splits)), folder)
    describe(folder, recipe, splits, Resources())
    return folder
