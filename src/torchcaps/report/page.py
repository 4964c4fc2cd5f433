"""The page that a run ends with: one file that needs nothing else."""

from importlib.resources import files
from pathlib import Path

import torch

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.evaluation import Evaluation
from torchcaps.data.types import Split
from torchcaps.data.writing import whole_file
from torchcaps.report import facts
from torchcaps.report.capsules import pose_dimensions, reconstructions
from torchcaps.report.confusion import confusion
from torchcaps.report.curves import errors, losses
from torchcaps.report.markup import Html, Section, lead, section, tag
from torchcaps.report.mistakes import mistakes
from torchcaps.report.routing import routing
from torchcaps.report.samples import Subject
from torchcaps.runs.run import Run, read_run

REPORT = "report.html"


def write_report(folder: Path, classifier: Classifier, test: Split, evaluation: Evaluation) -> Path:
    """Write ``report.html`` into a run's folder from its metrics, its result and its network; returns the path.

    ``test`` is the split as it was loaded, ``evaluation`` what the classifier says of all of it.
    """
    run = read_run(folder)
    subject = Subject(classifier, test, evaluation)
    was_training = classifier.training
    classifier.eval()
    try:
        with torch.inference_mode():
            page = make_page(run, subject, folder)
    finally:
        classifier.train(was_training)
    path = folder / REPORT
    with whole_file(path) as file:
        file.write(page.encode(errors="replace"))  # names of files may hold what is not text
    return path


def make_page(run: Run, subject: Subject, folder: Path) -> str:
    """The text of a page in a folder."""
    sections = [
        losses(run),
        errors(run, subject.evaluation),
        confusion(subject.evaluation),
        *_capsule_sections(subject),
        mistakes(subject, page=folder, data=Path(str(run.part("data").get("set", "")))),
        facts.configuration(run),
    ]
    return whole_page(facts.title(run, subject), facts.headline(run, subject), sections)


def whole_page(title: str, header: Html, sections: list[Section]) -> str:
    """A page of sections under a header, with the style in it, and the script where there is a list to search."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · torchcaps"),
        tag("style", _own_file("style.css")),
    )
    parts = [tag("section", tag("h2", part.title), part.body, id=part.identifier) for part in sections]
    has_search = any('class="searchable"' in part for part in parts)
    script = tag("script", _own_file("search.js")) if has_search else Html()
    body = tag("body", tag("main", header, _contents(sections), *parts), script)
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _capsule_sections(subject: Subject) -> list[Section]:
    if not subject.has_capsules:
        says = f"{subject.classifier.model} has no capsules, so there are no reconstructions, poses or routing to show."
        return [section("capsules", "Capsules", lead(says))]
    if not subject.has_decoder:
        says = "The network was trained without a decoder: its poses cannot be shown as images."
        return [section("reconstructions", "Reconstructions", lead(says)), routing(subject)]
    return [reconstructions(subject), pose_dimensions(subject), routing(subject)]


def _own_file(name: str) -> Html:
    return Html(files("torchcaps.report").joinpath(name).read_text(encoding="utf-8"))


def _contents(sections: list[Section]) -> Html:
    links = [tag("a", part.title, href=f"#{part.identifier}") for part in sections]
    return tag("nav", *links, aria_label="Contents")
