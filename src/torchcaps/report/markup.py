"""HTML as strings in which everything is escaped that is not markup already."""

from html import escape
from typing import NamedTuple

SHORT, TAIL = 10, 8  # characters of a name that is not cut in two, and of the end that is kept of others
VOID = ("br", "img", "input", "meta")  # elements without an end tag


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


def caption(name: str, **attributes: str | float) -> Html:
    """A name that is cut before its end where there is no room for it: names tend to differ in their last word."""
    style = f"{attributes.pop('class_', '')} cut".strip()
    last = name.rfind(" ") + 1
    place = last if 0 < len(name) - last <= SHORT else len(name) - TAIL
    parts = [name] if len(name) <= SHORT or not place else [name[:place], name[place:]]
    return tag("span", *(tag("span", part) for part in parts), class_=style, **{"title": name, **attributes})


def searchable(label: str, list_: Html) -> Html:
    """A list that scrolls by itself, with a box that filters it; without JavaScript there is no box."""
    box = tag("label", f"{label} ", tag("input", type="search", autocomplete="off"), hidden="", class_="search")
    nothing = tag("p", "Nothing found.", hidden="", class_="nothing", role="status")
    scrolling = tag("div", list_, nothing, class_="scroll tall", tabindex=0, role="region", aria_label=label)
    return tag("div", box, scrolling, class_="searchable")
