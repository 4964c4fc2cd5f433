"""``docs/results.md``, made from the results' files alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.figures import IMAGES, Gallery, LossCurves
from experiments.story import Drawing
from torchcaps.data.writing import whole_file
from torchcaps.runs.text import Table

NAME = "results"
Part = Table | LossCurves | Gallery | Drawing


@dataclass(frozen=True)
class Made:
    """Tables and figures, and the command that makes their numbers."""

    command: str
    parts: Sequence[Part]

    def as_markdown(self) -> str:
        blocks = [f"### {part.title}\n\n{part.as_markdown()}" for part in self.parts]
        return "\n\n".join([*blocks, f"Made by `{self.command}`."])


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A part of the document: what it shows, and that for each budget."""

    title: str
    text: str = ""
    made: Sequence[Made] = ()
    prose: str = ""  # markdown that was written by hand

    def as_markdown(self) -> str:
        blocks = [f"## {self.title}", self.text, self.prose, *(made.as_markdown() for made in self.made)]
        return "\n\n".join(filter(None, blocks))


@dataclass(frozen=True, kw_only=True)
class Document:
    title: str
    introduction: list[str] = field(default_factory=list)
    chapters: list[Chapter] = field(default_factory=list)

    def as_markdown(self) -> str:
        blocks = [f"# {self.title}", *self.introduction, *(chapter.as_markdown() for chapter in self.chapters)]
        return "\n\n".join(blocks) + "\n"

    def files(self) -> dict[str, bytes]:
        """The pictures that the markdown points to."""
        parts = [part for chapter in self.chapters for made in chapter.made for part in made.parts]
        figures = [part for part in parts if not isinstance(part, Table)]
        return {name: content for figure in figures for name, content in figure.files().items()}


def write_document(document: Document, output: Path) -> list[Path]:
    """Write the page, and its pictures before it, and remove those of former results; returns the new paths."""
    contents = {f"{IMAGES}/{name}": content for name, content in document.files().items()}
    contents[f"{NAME}.md"] = document.as_markdown().encode()
    for name, content in contents.items():
        with whole_file(output / name) as file:
            file.write(content)
    for path in (output / IMAGES).glob(f"{NAME}-*.png"):
        if f"{IMAGES}/{path.name}" not in contents:
            path.unlink()
    return [output / name for name in contents]
