"""``docs/results.md`` and ``docs/results.html``, made from the results' files alone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps.data.writing import whole_file
from torchcaps.report.markup import Html, Section, join, lead, section, tag
from torchcaps.report.page import whole_page
from torchcaps.report.tables import Table
from torchcaps.reproduce.figures import IMAGES, Gallery, LossCurves

NAME = "results"
Part = Table | LossCurves | Gallery


@dataclass(frozen=True)
class Made:
    """Tables and figures, and the command that makes their numbers."""

    command: str
    parts: Sequence[Part]

    def as_markdown(self) -> str:
        blocks = [f"### {part.title}\n\n{part.as_markdown()}" for part in self.parts]
        return "\n\n".join([*blocks, f"Made by `{self.command}`."])

    def as_html(self) -> Html:
        return join([*(part.as_html() for part in self.parts), lead("Made by ", tag("code", self.command), ".")])


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A part of the document: what it shows, and that for each budget."""

    title: str
    text: str = ""
    made: Sequence[Made] = ()
    prose: str = ""  # markdown that was written by hand

    @property
    def identifier(self) -> str:
        """As viewers of markdown name a heading, so that links in the notes lead somewhere in both files."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")

    def as_markdown(self) -> str:
        blocks = [f"## {self.title}", self.text, self.prose, *(made.as_markdown() for made in self.made)]
        return "\n\n".join(filter(None, blocks))

    def as_section(self) -> Section:
        body = [lead(self.text) if self.text else Html(), prose_html(self.prose)]
        return section(self.identifier, self.title, *body, *(made.as_html() for made in self.made))


@dataclass(frozen=True, kw_only=True)
class Document:
    title: str
    introduction: list[str] = field(default_factory=list)
    chapters: list[Chapter] = field(default_factory=list)

    def as_markdown(self) -> str:
        blocks = [f"# {self.title}", *self.introduction, *(chapter.as_markdown() for chapter in self.chapters)]
        return "\n\n".join(blocks) + "\n"

    def as_html(self) -> str:
        header = tag("header", tag("h1", self.title), prose_html("\n\n".join(self.introduction)))
        return whole_page(self.title, header, [chapter.as_section() for chapter in self.chapters])

    def files(self) -> dict[str, bytes]:
        """The pictures that the markdown points to."""
        parts = [part for chapter in self.chapters for made in chapter.made for part in made.parts]
        figures = [part for part in parts if not isinstance(part, Table)]
        return {name: content for figure in figures for name, content in figure.files().items()}


def prose_html(text: str) -> Html:
    """Markdown as HTML; what is HTML in it stays text."""
    if not text:
        return Html()
    from markdown_it import MarkdownIt  # rich needs it, so it is there

    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return tag("div", Html(html), class_="prose")


def write_document(document: Document, output: Path) -> list[Path]:
    """Write both files, and the pictures before them, and remove those of former results; returns the new paths."""
    contents = {f"{IMAGES}/{name}": content for name, content in document.files().items()}
    contents |= {f"{NAME}.md": document.as_markdown().encode(), f"{NAME}.html": document.as_html().encode()}
    for name, content in contents.items():
        with whole_file(output / name) as file:
            file.write(content)
    for path in (output / IMAGES).glob(f"{NAME}-*.png"):
        if f"{IMAGES}/{path.name}" not in contents:
            path.unlink()
    return [output / name for name in contents]
