"""Several runs on the same images: in what they differ, and on which images."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.classifier.evaluation import Evaluation
from torchcaps.classifier.statistics import McNemar, mcnemar
from torchcaps.data.types import Split
from torchcaps.runs.run import Run
from torchcaps.runs.text import count

CHANCE = 0.05  # a difference that is less likely than that is not put down to chance


class Compared(NamedTuple):
    """One of the runs."""

    name: str
    run: Run
    parameters: int
    evaluation: Evaluation

    @property
    def is_right(self) -> Tensor:
        """Of each image whether its class was found ``[N]``."""
        return self.evaluation.predicted == self.evaluation.label

    @property
    def settings(self) -> dict[str, Any]:
        """All fields of the recipe side by side; none where the recipe is not known."""
        parts = [part for part in self.run.part("recipe").values() if isinstance(part, dict)]
        return {str(name): value for part in parts for name, value in part.items()}


class Comparison(NamedTuple):
    """Two runs or more, and the images that all of them were evaluated on."""

    runs: Sequence[Compared]
    data: str
    split: str  # test or validation
    images: Split

    @property
    def settings(self) -> dict[str, list[Any]]:
        """The settings that are not the same in all runs, with the value of each run; None where it has none."""
        fields = dict.fromkeys(name for run in self.runs for name in run.settings)
        values = {name: [run.settings.get(name) for run in self.runs] for name in fields}
        return {name: of_runs for name, of_runs in values.items() if any(value != of_runs[0] for value in of_runs)}

    @property
    def mcnemar(self) -> McNemar | None:
        """The test for two runs; of more there is none."""
        if len(self.runs) != 2:
            return None
        first, second = (run.is_right for run in self.runs)  # [N]
        return mcnemar(int((first & ~second).sum()), int((second & ~first).sum()))


class Disagreement(NamedTuple):
    """Images that some runs get right and others wrong."""

    title: str
    places: Tensor  # [n], those with the surest mistake first


def disagreements(comparison: Comparison) -> list[Disagreement]:
    """Of two runs what one gets right and the other wrong; of more, what one alone gets right, or wrong."""
    runs = comparison.runs
    right = torch.stack([run.is_right for run in runs])  # [runs, N]
    # How sure those are of their answer whose answer is wrong.
    surest = torch.stack([run.evaluation.activation.nan_to_num().amax(1) for run in runs])  # [runs, N]
    surest = surest.masked_fill(right, 0.0).amax(0)  # [N]

    def ordered(title: str, is_one: Tensor) -> Disagreement:
        places = is_one.nonzero().squeeze(1)  # [n]
        return Disagreement(title, places[surest[places].argsort(descending=True, stable=True)])

    if len(runs) == 2:
        names = [run.name for run in runs]
        pairs = ((names[0], names[1], right[0] & ~right[1]), (names[1], names[0], right[1] & ~right[0]))
        return [ordered(f"{winner} is right, {loser} is wrong", is_one) for winner, loser, is_one in pairs]
    many = right.sum(0)  # [N], runs that are right
    alone = [ordered(f"Only {run.name} is right", right[place] & (many == 1)) for place, run in enumerate(runs)]
    wrong = many == len(runs) - 1
    return alone + [ordered(f"Only {run.name} is wrong", ~right[place] & wrong) for place, run in enumerate(runs)]


def verdict(names: Sequence[str], found: McNemar) -> str:
    """What McNemar's test says of two runs, in words."""
    first, second = names
    if not found.only_first and not found.only_second:
        return f"{first} and {second} are right on the same images: these images cannot tell which is better."
    better, worse = (first, second) if found.only_first > found.only_second else (second, first)
    chance = "less than 0.0001" if found.p < 1e-4 else f"{found.p:.2g}"
    says = (
        f"{first} alone is right on {count(found.only_first, 'image')}, {second} alone on {found.only_second:,}. "
        f"Between networks that are equally good, a difference at least this large comes about by chance with a "
        f"probability of {chance} (McNemar's test, {found.method}): "
    )
    if found.p < CHANCE:
        return f"{says}{better} is better than {worse} on images like these."
    return f"{says}this does not show that either is better."
