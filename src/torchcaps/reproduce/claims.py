"""What the paper says beside its tables, checked by stated rules."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchcaps.report.numbers import percent
from torchcaps.report.tables import Table
from torchcaps.reproduce import paper
from torchcaps.reproduce.cells import LABELS, Experiments, Run
from torchcaps.reproduce.results import Result
from torchcaps.reproduce.tables import NOT_RUN, error_text, paper_text

FAILS = 0.6  # an error above that is a failure: the paper's are 70 % and more
CLEAR = 2  # standard errors of a difference
RULES = (
    f"A run fails where its test error is above {percent(FAILS, 0)}, or where training leaves the numbers; else it "
    f"trains. It is worse than another where its error is higher by more than {CLEAR} standard errors, those of "
    "counting so many test images; what another seed would change is not in them."
)
Verdict = Literal["holds", "does not hold", "too close to call", "not run"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a claim says of a run, or of one run and another."""

    of: str
    says: Literal["fails", "trains", "worse"]
    run: Run
    than: Run | None = None
    paper: str = ""

    def verdict(self, results: Mapping[str, Result]) -> Verdict:
        mine = results.get(self.run.name)
        other = mine if self.than is None else results.get(self.than.name)
        if mine is None or other is None:
            return "not run"
        if self.says == "worse":
            return is_worse(mine, other)
        return "holds" if has_failed(mine) == (self.says == "fails") else "does not hold"

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
        by_verdict: dict[Verdict, list[str]] = {}
        for part in self.parts:
            by_verdict.setdefault(part.verdict(results), []).append(part.of)
        if len(by_verdict) == 1:
            return next(iter(by_verdict))
        return "; ".join(f"{verdict} for {', '.join(names)}" for verdict, names in by_verdict.items())


def has_failed(result: Result) -> bool:
    return result.error is None or result.error > FAILS


def is_worse(mine: Result, other: Result) -> Verdict:
    """By the errors; what is not finite is worse than anything."""
    if mine.error is None or other.error is None:
        return "holds" if other.error is not None else "too close to call"
    counts = [(result.error or 0.0, result.values["test_images"]) for result in (mine, other)]
    deviation = math.sqrt(sum(error * (1 - error) / images for error, images in counts))
    higher = mine.error - other.error
    if abs(higher) <= CLEAR * deviation:
        return "too close to call"
    return "holds" if higher > 0 else "does not hold"


def claims(runs: Experiments) -> list[Claim]:
    """The paper's side claims."""

    def compared(iterations: int, std: float) -> tuple[Part, ...]:
        return tuple(
            Part(
                of=LABELS[method],
                says="worse",
                run=runs.ablation(method, iterations, std),
                than=runs.ablation(method, *paper.DEFAULT),
                paper=f"{paper_text(cells[iterations, std])} against {paper_text(cells[paper.DEFAULT])}",
            )
            for method, cells in paper.TABLE2.items()
        )

    one = tuple(
        Part(of=LABELS[method], says="fails", run=runs.ablation(method, 1, 0.1), paper=paper_text(cells[1, 0.1]))
        for method, cells in paper.TABLE2.items()
    )
    losses = [
        Part(of=f"{LABELS[method]} with spread loss", says="trains", run=runs.ablation(method, *paper.DEFAULT))
        for method in paper.TABLE2
    ] + [
        Part(
            of=f"{LABELS[method]} with margin loss",
            says="trains" if method == "frem" else "fails",
            run=runs.margin(method),
        )
        for method in paper.TABLE2
    ]
    default = runs.ablation("frem", *paper.DEFAULT)
    residual = Part(of="FREM without against with", says="worse", run=runs.without_residual(), than=default)
    return [
        Claim("One iteration fails for every method", one),
        Claim("Three iterations are worse than two", compared(3, 0.1)),
        Claim("Matrices that start with deviation 0.01 are worse than with 0.1", compared(2, 0.01)),
        Claim("FREM trains with both losses, FRMS and EM need the spread loss", tuple(losses), "its text and curves"),
        Claim(
            "Stacking Algorithm 3 fails to train",
            (Part(of="Algorithm 3", says="fails", run=runs.stacked_variant()),),
            "its text",
        ),
        Claim("The residual blocks make training more stable: without them it is worse", (residual,), "its text"),
    ]


def claims_table(runs: Experiments, results: Mapping[str, Result], title: str) -> Table:
    """Each claim with the paper's evidence, our numbers and the verdict."""
    return Table(title, ["claim", "paper", "ours", "verdict"], [claim.row(results) for claim in claims(runs)], RULES)
