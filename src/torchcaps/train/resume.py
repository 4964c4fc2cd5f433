"""Going on with a run: what its folder says, and how a finished one is extended.

A finished run that gets more epochs goes on from its last checkpoint. A one-cycle rate makes a new cycle over the
epochs that were added; the margin of the spread loss stays where it ended. ``run.json`` keeps the former lengths.
"""

import json
from pathlib import Path
from typing import Any, cast, get_args

from torchcaps.errors import OptionError
from torchcaps.runs.folder import LAST, METRICS, RESULT, RUN, RunFolderError, write_json
from torchcaps.runs.metrics import read_rows
from torchcaps.runs.text import count
from torchcaps.train.devices import DEFAULT_PRECISION, Precision
from torchcaps.train.recipe import read_recipe

FORMER = "former_epochs"


def former_epochs(folder: Path, epochs: int, *, check: bool = True) -> tuple[int, ...]:
    """The lengths at which a run was at an end before, if it is to have so many epochs now.

    Without ``check`` it may be about to be extended: by another process, the one that trains together with this one.
    """
    found = _about(folder).get(FORMER, [])
    if not isinstance(found, list) or not all(isinstance(length, int) for length in found):
        raise RunFolderError(f"{folder / RUN} says {FORMER} is {found!r}, expected a list of numbers")
    planned = read_recipe(folder).optimisation.epochs
    if epochs == planned:
        return tuple(found)
    if check and not (folder / RESULT).is_file():
        raise OptionError(
            f"--epochs {epochs}: {folder} is not finished, it is at epoch {epochs_done(folder)} of {planned}: "
            "resume it without --epochs, then extend it"
        )
    if not (folder / LAST).is_file():
        raise RunFolderError(f"{folder} has no {LAST}, from which it would go on: start a new run of {epochs} epochs")
    check_longer(folder, epochs)
    return (*found, epochs_done(folder))


def check_longer(folder: Path, epochs: int) -> None:
    """Raise where a finished run already has so many epochs."""
    done = epochs_done(folder)
    if (folder / RESULT).is_file() and epochs <= done:
        raise OptionError(
            f"--epochs {epochs}: {folder} already has {count(done, 'epoch')}, expected more than that, as in --epochs "
            f"{2 * done}"
        )


def epochs_done(folder: Path) -> int:
    """Whole epochs that a run has trained."""
    rows = read_rows(folder / METRICS)
    return int((rows[-1]["epoch"] or 0.0) + 1e-6) if rows else 0


def describe_again(folder: Path, epochs: int, former: tuple[int, ...], how: dict[str, Any]) -> None:
    """Write into ``run.json`` what a resumed run is from now on; one that is extended has no result any more."""
    about = _about(folder)
    now = {**about, **how, "recipe": {**about["recipe"]}}
    now["recipe"]["optimisation"] = {**about["recipe"]["optimisation"], "epochs": epochs}
    if former != tuple(about.get(FORMER, ())):
        now[FORMER] = list(former)
        (folder / RESULT).unlink(missing_ok=True)
    if now != about:
        write_json(folder / RUN, now)


def recorded_precision(folder: Path) -> Precision:
    """The precision that a run has trained with so far."""
    found = _about(folder).get("precision", DEFAULT_PRECISION)
    if found not in get_args(Precision):
        raise RunFolderError(f"{folder / RUN} says precision is {found!r}, expected {', '.join(get_args(Precision))}")
    return cast(Precision, found)


def _about(folder: Path) -> dict[str, Any]:
    read_recipe(folder)  # which says what is wrong with the file
    about: dict[str, Any] = json.loads((folder / RUN).read_text(encoding="utf-8"))
    return about
