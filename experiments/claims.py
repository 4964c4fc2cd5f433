"""What the paper says beside its tables, checked by stated rules."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from experiments import paper
from experiments.cells import LABELS, Experiments, Run
from experiments.results import Result
from experiments.states import differences, differences_of, fields_of
from experiments.tables import NOT_RUN, error_text, paper_text
from torchcaps.runs.text import Table, percent

FAILS = 0.6  # an error above that is a failure: the paper's are 70 % and more
CLEAR = 2  # standard errors of a difference
RULES = (
    f"A run fails where its test error is above {percent(FAILS, 0)}, or where training diverges (NaN or infinity); "
    f"else it trains. It is worse than another where its error is higher by more than {CLEAR} standard errors, "
    "the counting error for that number of test images. This ignores variation between seeds. There is no verdict if "
    "the comparison run also fails, or if the two recipes differ in more than the claim is about."
)
UNTESTED = "not tested under the paper's conditions; in our short runs:"
FAILS_TOO, OTHER_RECIPE = "cannot tell: the default fails too", "cannot tell: of another recipe"


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a claim says of a run, or of one run and another: a failure says nothing where the other fails too."""

    of: str
    says: Literal["fails", "trains", "worse"]
    run: Run
    than: Run | None = None
    paper: str = ""

    def verdict(self, results: Mapping[str, Result]) -> str:
        mine = results.get(self.run.name)
        other = mine if self.than is None else results.get(self.than.name)
        if mine is None or other is None:
            return NOT_RUN
        if self.is_of_others(mine, other):
            return OTHER_RECIPE
        if self.says == "trains":
            return "does not hold" if has_failed(mine) else "holds"
        if has_failed(mine) and has_failed(other):
            return FAILS_TOO
        if self.says == "worse":
            return is_worse(mine, other)
        return "holds" if has_failed(mine) else "does not hold"

    def is_of_others(self, mine: Result, other: Result) -> bool:
        """Whether the results differ in anything else than the runs; one alone, from the run."""
        if self.than is None:
            return bool(differences_of(self.run, mine))
        runs = fields_of(self.run.recipe), fields_of(self.than.recipe)
        return differences(mine.recipe, other.recipe) != differences(*runs)

    def numbers(self, results: Mapping[str, Result]) -> str:
        found = [results.get(run.name) for run in (self.run, self.than) if run is not None]
        texts = [NOT_RUN if result is None else error_text(result) for result in found]
        return f"{self.of}: {' against '.join(texts)}"


@dataclass(frozen=True)
class Claim:
    text: str
    parts: tuple[Part, ...]
    paper: str = ""  # where there are no numbers

    def row(self, results: Mapping[str, Result]) -> list[str]:
        evidence = self.paper or "; ".join(f"{part.of}: {part.paper}" for part in self.parts)
        numbers = "; ".join(part.numbers(results) for part in self.parts)
        return [self.text, evidence, numbers, self.verdict(results)]

    def verdict(self, results: Mapping[str, Result]) -> str:
        """One word where the parts agree, else who says what."""
        by_verdict: dict[str, list[str]] = {}
        for part in self.parts:
            by_verdict.setdefault(part.verdict(results), []).append(part.of)
        if len(by_verdict) == 1:
            return next(iter(by_verdict))
        return "; ".join(f"{verdict} for {', '.join(names)}" for verdict, names in by_verdict.items())


def has_failed(result: Result) -> bool:
    return result.error is None or result.error > FAILS


def is_worse(mine: Result, other: Result) -> str:
    """By the errors, of which one at least is finite: the other is worse."""
    if mine.error is None or other.error is None:
        return "holds" if mine.error is None else "does not hold"
    counts = [(mine.error, mine.images), (other.error, other.images)]
    standard_error = math.sqrt(sum(error * (1 - error) / images for error, images in counts))
    higher = mine.error - other.error
    if abs(higher) <= CLEAR * standard_error:
        return "too close to call"
    return "holds" if higher > 0 else "does not hold"


def claims(runs: Experiments) -> list[Claim]:
    """The paper's side claims."""

    def default(method: str) -> Run:
        return runs.ablation(method, *paper.DEFAULT)

    def compared(says: Literal["fails", "worse"], iterations: int, std: float) -> tuple[Part, ...]:
        return tuple(
            Part(
                of=LABELS[method],
                says=says,
                run=runs.ablation(method, iterations, std),
                than=default(method),
                paper=f"{paper_text(cells[iterations, std])} against {paper_text(cells[paper.DEFAULT])}",
            )
            for method, cells in paper.TABLE2.items()
        )

    losses = [
        Part(of=f"{LABELS[method]} with spread loss", says="trains", run=default(method)) for method in paper.TABLE2
    ] + [
        Part(
            of=f"{LABELS[method]} with margin loss",
            says="trains" if method == "frem" else "fails",
            run=runs.margin(method),
            than=default(method),
        )
        for method in paper.TABLE2
    ]
    stacked = Part(of="Algorithm 3 against FRMS", says="fails", run=runs.stacked_variant(), than=default("frms"))
    residual = Part(of="FREM without against with", says="worse", run=runs.without_residual(), than=default("frem"))
    return [
        Claim("One iteration fails for every method", compared("fails", 1, 0.1)),
        Claim("Three iterations are worse than two", compared("worse", 3, 0.1)),
        Claim("Matrices that start at a std of 0.01 are worse than at 0.1", compared("worse", 2, 0.01)),
        Claim("FREM trains with both losses, FRMS and EM need the spread loss", tuple(losses), "its text and curves"),
        Claim("Stacking Algorithm 3 fails to train", (stacked,), "its text"),
        Claim("The residual blocks make training more stable: without them it is worse", (residual,), "its text"),
    ]


def claims_table(runs: Experiments, results: Mapping[str, Result], title: str) -> Table:
    """Each claim with the paper's evidence, our numbers, and what they say; only the full budget is the paper's."""
    rows = [claim.row(results) for claim in claims(runs)]
    if runs.budget.name != "full":
        rows = [[*others, verdict if verdict == NOT_RUN else f"{UNTESTED} {verdict}"] for *others, verdict in rows]
    return Table(title, ["claim", "paper", "ours", "verdict"], rows, RULES)
