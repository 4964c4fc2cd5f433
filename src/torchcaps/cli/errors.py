"""How a command ends that could not do what it was asked to."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.errors import UserError


@contextmanager
def explain_errors(program: str, *, debug: bool = False) -> Iterator[None]:
    """One line and exit code 2 for what the user can fix, 130 for Ctrl-C, 1 without a word for a reader that left."""
    try:
        yield
        _flush()
    except BrokenPipeError:  # as with | head
        _discard_output()
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if debug:
            raise
        print(f"{program}: stopped by Ctrl-C", file=sys.stderr)
        raise SystemExit(130) from None
    except UserError as error:
        if debug:
            raise
        print(f"{program}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _flush() -> None:
    """Find out now whether the output was written: Python, as it exits, would say so with a traceback."""
    if sys.stdout is None:  # it was closed before we began
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        raise UserError(f"the output cannot be written: {error.strerror}") from error


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
