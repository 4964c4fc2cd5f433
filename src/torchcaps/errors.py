"""The root of the errors that a user can mend."""

import sys
from importlib.util import find_spec


class UserError(Exception):
    """Something outside of the program is wrong: a file, an option, the machine. The message says what to do.

    The command line prints it without a traceback, and exits with code 2.
    """


class OptionError(UserError, ValueError):
    """An option, on the command line or in the environment, that is not one."""


class MissingExtraError(UserError, ImportError):
    """A package that the layers do without is not installed."""


def require(package: str, extra: str, what: str) -> None:
    """Raise where a package of an extra is not installed, before its import does in Python's words."""
    found = sys.modules[package] if package in sys.modules else find_spec(package)
    if found is None:
        raise MissingExtraError(f"{what} needs {package}: pip install 'torchcaps[{extra}]'")
