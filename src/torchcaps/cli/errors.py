"""How a command ends that could not do what it was asked to."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.errors import UserError


@contextmanager
def explain_errors(program: str, *, debug: bool = False) -> Iterator[None]:
    """What the user can mend is said in a line, exit code 2; Ctrl-C is 130; a reader that went away is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # as with | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more as it exits
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
