"""The verdicts on the paper's side claims."""

from typing import Any

import pytest

from experiments.budgets import BUDGETS
from experiments.cells import Experiments
from experiments.claims import claims
from experiments.record import recipe_values
from experiments.results import parse
from fake_results import result_values

DEFAULTS: dict[str, float | None] = {f"{method}_2_0_1": 0.2 for method in ("frms", "frem", "em")}


def verdicts(changes: dict[str, dict[str, Any]] | None = None, **errors: float | None) -> list[str]:
    """Of all claims, from the errors of runs by name (with dashes and dots as underscores).

    ``changes`` has fields of recipes that are not as they should be.
    """
    found = {}
    runs = Experiments(BUDGETS["short"])
    for cell in runs.cells("claims"):
        key = cell.job.name.removeprefix("ablation-").replace("-", "_").replace(".", "_")
        if key in errors:
            recipe = recipe_values(cell.job.recipe.with_fields(**(changes or {}).get(key, {})))
            found[cell.job.name] = parse(result_values(key, errors[key], recipe=recipe, test_images=10000))
    return [claim.verdict(found) for claim in claims(runs)]


def test_claims_that_were_not_run() -> None:
    assert verdicts() == ["not run"] * 6


def test_one_iteration() -> None:
    assert verdicts(**DEFAULTS, frms_1_0_1=0.7, frem_1_0_1=0.61, em_1_0_1=None)[0] == "holds"
    assert verdicts(**DEFAULTS, frms_1_0_1=0.3, frem_1_0_1=0.6, em_1_0_1=0.2)[0] == "does not hold"
    mixed = verdicts(**DEFAULTS, frms_1_0_1=0.7, frem_1_0_1=0.2)[0]
    assert mixed == "holds for FRMS; does not hold for FREM; not run for EM"
    assert verdicts(frms_1_0_1=0.7, frem_1_0_1=0.7, em_1_0_1=0.7)[0] == "not run"  # without what to compare them with


@pytest.mark.parametrize("default", [0.8, None])
@pytest.mark.parametrize("mine", [0.7, None])
def test_chance_against_chance(mine: float | None, default: float | None) -> None:
    errors = dict.fromkeys(DEFAULTS, default)
    changed = [f"{key}{end}" for key in ("frms", "frem", "em") for end in ("_1_0_1", "_3_0_1", "_2_0_01")]
    errors |= dict.fromkeys([*changed, "frms_2_0_1_variant", "frem_2_0_1_no_residual"], mine)
    errors |= {f"{method}_2_0_1_margin": mine for method in ("frms", "em")}
    one, three, small, losses, stacked, residual = verdicts(**errors)
    assert {one, three, small, stacked, residual} == {"cannot tell: the default fails too"}
    assert "cannot tell: the default fails too for FRMS with margin loss, EM with margin loss" in losses


def test_what_trains_where_the_default_does_not() -> None:
    errors = {**dict.fromkeys(DEFAULTS, None), "frms_1_0_1": 0.2, "frem_1_0_1": 0.2, "em_1_0_1": 0.2}
    assert verdicts(**errors)[0] == "does not hold"
    assert verdicts(frem_2_0_1=None, frem_2_0_1_no_residual=0.2)[5] == "does not hold"


def test_claims_are_judged_by_results_that_differ_in_nothing_else() -> None:
    other = {"rate": 0.5}
    errors = {**DEFAULTS, "frms_3_0_1": 0.4, "frem_3_0_1": 0.4, "em_3_0_1": 0.4}
    mixed = verdicts({"em_3_0_1": other}, **errors)
    assert mixed[1] == "holds for FRMS, FREM; cannot tell: of another recipe for EM"
    assert verdicts({"em_2_0_1": other}, **errors)[1] == mixed[1]
    assert verdicts({"em_2_0_1": other, "em_3_0_1": other}, **errors)[1] == "holds"  # both had it
    assert "cannot tell: of another recipe for EM with spread loss" in verdicts({"em_2_0_1": other}, **errors)[3]


@pytest.mark.parametrize(
    ("three", "verdict"),
    [(0.3, "holds"), (0.1, "does not hold"), (0.2, "too close to call"), (0.205, "too close to call"), (None, "holds")],
)
def test_three_iterations(three: float | None, verdict: str) -> None:
    errors = {f"{method}_3_0_1": three for method in ("frms", "frem", "em")}
    errors |= DEFAULTS
    assert verdicts(**errors)[1] == verdict


def test_losses() -> None:
    errors = DEFAULTS
    margin = {"frms_2_0_1_margin": 0.8, "frem_2_0_1_margin": 0.2, "em_2_0_1_margin": 0.7}
    assert verdicts(**errors, **margin)[3] == "holds"
    assert "does not hold for EM with margin loss" in verdicts(**errors, **{**margin, "em_2_0_1_margin": 0.2})[3]


def test_variant_and_residual() -> None:
    assert verdicts(frms_2_0_1=0.2, frms_2_0_1_variant=0.75)[4] == "holds"
    assert verdicts(frem_2_0_1=0.2, frem_2_0_1_no_residual=0.5)[5] == "holds"
