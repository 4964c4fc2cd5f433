"""Links from a page to files beside it."""

import os
from pathlib import Path
from urllib.parse import quote

from torchcaps.report.markup import Html, tag


def file_link(file: Path, *, page: Path, data: Path | None) -> Html:
    """The file's name, relative to the ``data`` folder where it is in it, with a link to it where it exists.

    ``page`` is the folder of the page.
    """
    name = shown_name(file, data)
    try:
        address = address_from(page, file) if file.is_file() else None
    except OSError:  # a folder that may not be entered
        address = None
    attributes = {"class_": "file", "title": name}
    return tag("span", name, **attributes) if address is None else tag("a", name, href=address, **attributes)


def shown_name(file: Path, data: Path | None) -> str:
    """Relative to the data folder; of files elsewhere their own name alone."""
    return str(file.relative_to(data)) if data is not None and file.is_relative_to(data) else file.name


def address_from(page: Path, file: Path) -> str:
    """Relative, so that page and images can be moved together; absolute where they have nothing in common."""
    page, file = page.resolve(), file.resolve()
    common = os.path.commonpath([page, file]) if page.drive == file.drive else ""
    if common in ("", page.anchor):
        return file.as_uri()
    return quote(os.fsencode(Path(os.path.relpath(file, page)).as_posix()))
