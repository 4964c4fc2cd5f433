"""A recipe as what to type."""

import shlex
from typing import Any

from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import VARIANTS, list_recipes
from torchcaps.train.recipes import recipe as named_recipe

NOT_TYPED = ("name", "root", "checkpoint_every")  # they change nothing of what comes out


def command_line(recipe: Recipe) -> str:
    """The ``torchcaps train`` that follows a recipe: the nearest one by name, and the fields that differ.

    >>> command_line(named_recipe("mnist-frem", epochs=5, residual=False))
    'torchcaps train mnist-frem --no-residual --epochs 5'
    """
    plain = f"{recipe.data.data}-{recipe.network.routing if recipe.network.has_capsules else 'cnn'}"
    names = [recipe.name] if recipe.name in list_recipes() else []
    changes = {name: _changes(recipe, name) for name in (*names, *(f"{plain}{variant}" for variant in VARIANTS))}
    name = min(changes, key=lambda name: len(changes[name]))
    words = [word for field, value in changes[name].items() for word in _words(field.replace("_", "-"), value)]
    return shlex.join(["torchcaps", "train", name, *words])


def _changes(recipe: Recipe, name: str) -> dict[str, Any]:
    """The fields in which a recipe differs from that of a name, but for those that change nothing."""
    old, not_typed = named_recipe(name).flat(), (*NOT_TYPED, *recipe.without_effect())
    return {field: value for field, value in recipe.flat().items() if field not in not_typed and value != old[field]}


def _words(field: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{field}" if value else f"--no-{field}"]
    if isinstance(value, tuple):
        return [f"--{field}", *map(str, value)]
    if isinstance(value, dict):
        return [f"--{field}", *(str(word) for pair in value.items() for word in pair)]
    return [f"--{field}", str(value)]
