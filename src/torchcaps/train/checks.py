"""Whether the values of settings can be meant."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torchcaps.errors import UserError

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", Path: "a path"}


class RecipeError(UserError):
    """A value that no run can have. No ValueError: the parser of the command line would put its own words around it."""


def check_types(
    part: Any,
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    most: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Raise where a field of a dataclass is not of its type, not finite, or not in its range.

    Values come from JSON files and from Python too, where nothing else looks at them.
    """
    kind: Any = type(part)
    hints = hints_of(kind)
    for item in fields(part):
        name, value, hint = item.name, getattr(part, item.name), hints[item.name]
        if not is_of(value, hint):
            raise RecipeError(f"{name} is {value!r}, expected {in_words(hint)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise RecipeError(f"{name} is {value}, expected a finite number")
        if name in positive and not value > 0:
            raise RecipeError(f"{name} is {value}, expected more than 0")
        if name in not_negative and not value >= 0:
            raise RecipeError(f"{name} is {value}, expected 0 or more")
        if name in most and value is not None and value > most[name]:
            raise RecipeError(f"{name} is {value}, expected at most {most[name]}")


@cache  # a recipe is made of many others, and hints are read from source text
def hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as annotations write it; a whole number is a number too."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(is_of(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:  # of any length
        return isinstance(value, tuple) and all(is_of(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            is_of(key, arguments[0]) and is_of(one, arguments[1]) for key, one in value.items()
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def in_words(hint: Any) -> str:
    """
    >>> in_words(int | None), in_words(Literal["last", "best"])
    ('a whole number or none', 'last or best')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(in_words(one) for one in arguments)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return "whole numbers, as in (2, 3)" if arguments[0] is int else "numbers, as in (1.0, 2.5)"
    if origin is dict:
        return "names with their values"
    return "none" if hint is NoneType else WORDS.get(hint, str(hint))
