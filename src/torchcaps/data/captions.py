"""Names that are longer than their place."""

from collections.abc import Callable

DOTS = "…"


def cut_to_fit(name: str, fits: Callable[[str], bool]) -> str:
    """The name on one line; where that is too long without some of its middle, as names tend to differ at their ends.

    >>> cut_to_fit("Eurasian tree sparrow", lambda text: len(text) <= 16)
    'Eurasian…sparrow'
    """
    name = " ".join(name.split())
    if fits(name):
        return name
    for kept in range(len(name) - 1, 0, -1):
        tail = kept // 2
        cut = name[: kept - tail].rstrip() + DOTS + name[len(name) - tail :].lstrip()
        if fits(cut):
            return cut
    return DOTS
