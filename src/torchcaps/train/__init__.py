"""Recipes, and the loop that follows them (extra ``train``: Lightning carries the loop)."""

from torchcaps.errors import require

require("rich", "train", "training")

from torchcaps.train.arrays import fit  # noqa: E402 - after the check
from torchcaps.train.recipe import Recipe  # noqa: E402
from torchcaps.train.recipes import folder_recipe, list_recipes, recipe  # noqa: E402
from torchcaps.train.run import Finished, train  # noqa: E402

__all__ = ["Finished", "Recipe", "fit", "folder_recipe", "list_recipes", "recipe", "train"]
