"""Which data a result really comes from."""

from pathlib import Path

from torchcaps.data.origin import unofficial
from torchcaps.data.sources import SOURCES


def data_title(name: str, root: Path | None) -> str:
    """A set's name; of one whose images are not the official ones, with a word that says so."""
    title = SOURCES[name].title if name in SOURCES else name
    note = unofficial(name, root).note
    return f"{title} ({note})" if note else title
