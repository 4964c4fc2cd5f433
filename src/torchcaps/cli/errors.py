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
        if sys.stdout is not None:  # where it was closed before we began
            sys.stdout.flush()  # here, or Python shows a traceback as it exits
    except BrokenPipeError:  # as with | head
        _discard_output()
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if debug:
            raise
        print(f"{program}: stopped by Ctrl-C", file=sys.stderr)
        raise SystemExit(130) from None
    except (UserError, OSError) as error:
        if debug:
            raise
        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or 'the output'} cannot be read or written: {error.strerror or error}"
            _discard_output()
        print(f"{program}: {message}", file=sys.stderr)
        raise SystemExit(2) from None


def _discard_output() -> None:
    """What is still to be written goes nowhere: Python would try again as it exits."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
