"""What was trained, on what data, how and where."""

import json
import re
from datetime import datetime
from typing import Any

from torchcaps.report.markup import Html, Section, section, tag
from torchcaps.report.samples import Subject
from torchcaps.runs.run import Run
from torchcaps.runs.text import NOTHING, SPACE, count, duration, percent, short

ROUTINGS = {"frem": "FREM", "frms": "FRMS", "em": "EM"}


def title(run: Run, subject: Subject) -> str:
    """One line that says what this is; of a folder of images its own name, not where it lies."""
    data = str(run.part("data").get("set") or "a data set")
    own_name = re.split(r"[/\\]", data.rstrip("/"))[-1]
    return f"{network_name(subject)} on {own_name or data}"


def network_name(subject: Subject) -> str:
    """With its routing method, where it has one."""
    if not subject.has_capsules:
        return subject.classifier.model
    routing = str(subject.classifier.options.get("routing", "frem"))
    return f"{subject.classifier.model} with {ROUTINGS.get(routing, routing)} routing"


def headline(run: Run, subject: Subject) -> Html:
    """The title, the test error, and the few numbers that one asks for next."""
    evaluation, data = subject.evaluation, run.part("data")
    low, high = evaluation.interval
    trained = f"Trained on {data['train']:,} images" if isinstance(data.get("train"), int) else "Trained"
    says = f"{trained} of {count(len(evaluation.classes), 'class', 'classes')}, tested on {len(evaluation.label):,}."
    big = tag(
        "div",
        tag("span", "test error", class_="what"),
        tag("strong", percent(evaluation.error)),
        tag("span", f"95{SPACE}% interval: {percent(low)} to {percent(high)}"),
        tag("span", f"{evaluation.wrong:,} of {count(len(evaluation.label), 'image')} wrong"),
        class_="big",
    )
    tiles = [_tile(name, value) for name, value in _tiles(run, subject) if value]
    return tag(
        "header",
        tag("p", str(run.card.get("name", "")) or "torchcaps", class_="over"),
        tag("h1", title(run, subject)),
        tag("p", says, class_="lead"),
        tag("div", big, tag("dl", *tiles, class_="tiles"), class_="result"),
    )


def _tiles(run: Run, subject: Subject) -> list[tuple[str, str]]:
    validation, seconds = run.number("validation_error"), run.number("seconds")
    best, epochs = run.number("best_validation_error"), run.number("epochs")
    speed, familiar = run.number("images_per_second"), run.number("familiar_error")
    return [
        ("error on familiar viewpoints", "" if familiar is None else percent(familiar)),
        ("validation error", "" if validation is None else percent(validation)),
        ("best validation error", "" if best is None else percent(best)),
        ("epochs", "" if epochs is None else short(epochs)),
        ("training time", "" if seconds is None else duration(seconds)),
        ("images per second", "" if speed is None else short(speed)),
        ("parameters", f"{subject.classifier.network.parameter_count():,}"),
    ]


def _tile(name: str, value: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value))


def configuration(run: Run) -> Section:
    """Every field of the recipe, and what else one would need to do it again."""
    data = {
        name: f"{value:,}" if isinstance(value, int) else value
        for name, value in run.part("data").items()
        if name != "classes"  # the matrix names them
    }
    recipe = {part: fields for part, fields in run.part("recipe").items() if isinstance(fields, dict)}
    steps, seconds = run.number("steps"), run.number("seconds")
    speed = run.number("images_per_second")
    run_facts = {
        "started": _time(run.card.get("started")),
        "training time": None if seconds is None else duration(seconds),
        "optimiser steps": None if steps is None else f"{steps:,.0f}",
        "images per second": None if speed is None else short(speed),
        "weights": run.result.get("weights"),
        "seed": run.card.get("seed"),
        "processes": run.card.get("processes"),
        "device": run.card.get("device"),
        "precision": run.card.get("precision"),
        "threads": run.card.get("threads"),
        "machine": run.card.get("machine"),
    }
    return section(
        "configuration",
        "Configuration",
        *(_table(part.capitalize(), fields, columns=True) for part, fields in recipe.items()),
        tag(
            "div",
            _table("Run", {name: value for name, value in run_facts.items() if value is not None}),
            _table("Data", data),
            _table("Versions", run.part("versions")),
            class_="facts",
        ),
    )


def _table(title: str, facts: dict[str, Any], *, columns: bool = False) -> Html:
    if not facts:
        return Html()
    rows = [tag("div", tag("dt", str(name).replace("_", " ")), tag("dd", _shown(facts[name]))) for name in facts]
    return tag("div", tag("h3", title), tag("dl", *rows, class_="table columns" if columns else "table"))


def _shown(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or NOTHING
    return (json.dumps(value) if value else NOTHING) if isinstance(value, dict) else f"{value:g}"


def _time(started: Any) -> Any:
    """The date in one form, or what there is."""
    try:
        return datetime.fromisoformat(started).strftime("%d %B %Y, %H:%M %Z").strip()
    except (TypeError, ValueError):
        return started
