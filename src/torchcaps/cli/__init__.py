"""The ``torchcaps`` command. What it needs beyond the layers (tyro, rich) is the extra ``cli``."""

import sys
from importlib.util import find_spec


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, or say what to install for it."""
    if missing := [name for name in ("tyro", "rich") if find_spec(name) is None]:
        print(
            f"torchcaps: the command line needs {' and '.join(missing)}: pip install 'torchcaps[cli]'", file=sys.stderr
        )
        raise SystemExit(2)
    from torchcaps.cli.commands import main as run

    run(arguments)
