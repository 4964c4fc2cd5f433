"""What was tried on validation data, as tables."""

import re
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from experiments.results import Result
from experiments.states import settings
from experiments.tables import Results
from experiments.trials import FOLDS, HARD_FOLDS, TRIALS
from torchcaps.runs.text import NOTHING, Table, duration, percent
from torchcaps.train.devices import DEFAULT_PRECISION

ASKS = {trial.name: trial.asks for trial in TRIALS}
FOLD_SUFFIX = re.compile(r"-fold-\d+$")


def trial_tables(results: Results) -> list[Table]:
    """By fold, where errors of toys are known; then one by one."""
    by_fold = folds_table(results)
    return [*([by_fold] if by_fold.rows else []), trials_table(results)]


def trials_table(results: Results) -> Table:
    """What was tried on validation data, in the order of the list; results of trials that left the list come last."""
    listed = [name for trial in TRIALS for name in (trial.name, f"trial-{trial.name}")]
    groups = list(dict.fromkeys(trial.group for trial in TRIALS))

    def place(result: Result) -> tuple[int, int, str]:
        group, name = (result.trial or {})["group"], result.name
        in_list = listed.index(name) if name in listed else len(listed)
        return groups.index(group) if group in groups else len(groups), in_list, name

    found = sorted((result for result in results.values() if result.trial is not None), key=place)
    first = settings(found[0].recipe) if found else {}
    columns = [
        "group",
        "trial",
        "changed",
        "asks",
        "training error",
        "validation error: best",
        "last",
        "epochs",
        "time",
    ]
    note = f"What changed is against {found[0].name}, which has {words(first)}." if found else ""
    return Table("Trials", columns, [trial_row(result, first) for result in found], note)


def folds_table(results: Results) -> Table:
    """Trials on smallNORB that know the error of each held-out toy, all folds of one in a row; and by class."""
    left = families(results)
    kinds = sorted({kind_of(toy) for folds in left.values() for one in folds.values() for toy in one.held_out})
    rows = []
    for trial in TRIALS:
        if folds := left.pop(trial.name, None):
            rows.append([trial.name, *fold_cells(folds, kinds)])
    rows += [[name, *fold_cells(folds, kinds)] for name, folds in left.items()]
    some = f"mean of {', '.join(map(str, HARD_FOLDS))}"
    columns = ["trial", *(f"fold {k}" for k in range(FOLDS)), "mean", some, *kinds]
    note = (
        "Validation errors in percent, after the last epoch; of a class, the mean over its toys that were held out in "
    )
    note += "the folds that were run."
    return Table("smallNORB by fold", columns, rows, note)


def families(results: Results) -> dict[str, dict[int, Result]]:
    """Trials on smallNORB that know the error of each held-out toy: those that differ in the fold, by it."""
    found: dict[str, dict[int, Result]] = {}
    for result in results.values():
        if result.trial is not None and result.held_out and result.recipe["data"] == "smallnorb":
            found.setdefault(FOLD_SUFFIX.sub("", result.name), {})[int(result.recipe["fold"])] = result
    return found


def fold_cells(folds: Mapping[int, Result], kinds: Sequence[str]) -> list[str]:
    """The error of each fold, their mean and number, and the mean error of each class."""
    errors = {fold: result.validation[-1] for fold, result in sorted(folds.items())}
    toys = [(kind_of(toy), error) for result in folds.values() for toy, error in result.held_out.items()]
    of_kind = {kind: [error for other, error in toys if other == kind] for kind in kinds}
    cells = [hundredths(errors[fold]) if fold in errors else NOTHING for fold in range(FOLDS)]
    for needed in (range(FOLDS), HARD_FOLDS):
        known = all(fold in errors for fold in needed)
        cells.append(hundredths(mean(errors[fold] for fold in needed)) if known else NOTHING)
    return cells + [hundredths(mean(values)) if values else NOTHING for values in of_kind.values()]


def kind_of(toy: str) -> str:
    """``"car 4"`` -> ``"car"``."""
    return re.sub(r" \d+$", "", toy)


def hundredths(error: float) -> str:
    return f"{100 * error:.1f}"


def trial_row(result: Result, first: Mapping[str, Any]) -> list[str]:
    """By the recipe that was run: what the list says now may be another. ``first`` has the settings of the first."""
    trial, training, validation = result.trial or {}, result.training, result.validation
    values = settings(result.recipe)
    changed = {name: value for name, value in values.items() if name not in first or value != first[name]}
    if result.precision != DEFAULT_PRECISION:
        changed["precision"] = result.precision
    return [
        trial["group"],
        result.name,
        words(changed) or "nothing",
        ASKS.get(result.name, trial["asks"]),
        percent(training[-1]) if training else NOTHING,
        percent(min(validation)) if validation else NOTHING,
        "failed: not finite" if result.failed else percent(validation[-1]) if validation else NOTHING,
        result.length if result.failed else str(result.epochs),
        duration(result.seconds),
    ]


def words(values: Mapping[str, Any]) -> str:
    """Settings as a list; an empty value, as of routing options, is none."""
    return ", ".join(f"{name} {value if value or value == 0 else 'none'}" for name, value in values.items())
