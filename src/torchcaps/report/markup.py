"""HTML as strings in which everything is escaped that is not markup already."""

from html import escape
from typing import NamedTuple

VOID = ("br", "img", "meta")  # elements without an end tag


class Html(str):
    """Finished markup. Plain strings are text, and escaped when they are put into an element."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float) -> Html:
    """An element; ``class_`` is the class, and other underscores in attributes are hyphens.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="note")
    '<p class="note">1 &lt; 2 <b>yes</b></p>'
    """
    start = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{start}>" if name in VOID else f"<{start}>{join(children)}</{name}>")


def join(parts: tuple[str, ...] | list[str]) -> Html:
    """Markup and text, one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


class Section(NamedTuple):
    """A part of the page that the list of contents points to."""

    identifier: str
    title: str
    body: Html


def section(identifier: str, title: str, *children: str) -> Section:
    return Section(identifier, title, join(children))


def lead(*text: str) -> Html:
    """The sentences that say what a section shows."""
    return tag("p", *text, class_="lead")


def scroll_box(label: str, *children: str) -> Html:
    """What may be wider than a phone scrolls by itself, by keyboard too; the page does not."""
    return tag("div", *children, class_="scroll", tabindex=0, role="region", aria_label=label)
