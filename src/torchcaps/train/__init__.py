"""Recipes, and the loop that follows them (extra ``train``: Lightning carries the loop)."""

from torchcaps.train.arrays import fit
from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import folder_recipe, list_recipes, recipe
from torchcaps.train.run import Finished, train

__all__ = ["Finished", "Recipe", "fit", "folder_recipe", "list_recipes", "recipe", "train"]
