"""Experiments on validation data, to choose settings by. The test split is never evaluated."""

from dataclasses import dataclass, field
from typing import Any

from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import recipe


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe with some fields changed, and what is asked by it."""

    group: str
    name: str
    base: str
    changes: dict[str, Any] = field(default_factory=dict)
    asks: str = ""

    @property
    def recipe(self) -> Recipe:
        return recipe(self.base, **self.changes)

    def as_json(self) -> dict[str, Any]:
        return {"group": self.group, "base": self.base, "changes": self.changes, "asks": self.asks}


# In the order of the report's table; a new one goes to the end of its group. Those that failed stay.
TRIALS = [
    Trial(group="start", name="frem", base="smallnorb-frem-quick", asks="what the others are compared with"),
    Trial(
        group="decoder",
        name="no-decoder",
        base="smallnorb-frem-quick",
        changes={"reconstruction": 0.0},
        asks="does the reconstruction loss help to carry over?",
    ),
    Trial(
        group="weights",
        name="decay-5e-4",
        base="smallnorb-frem-quick",
        changes={"weight_decay": 5e-4},
        asks="L2 of the weights, as in the authors' older code",
    ),
]
