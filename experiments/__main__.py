"""``python -m experiments``: the paper's experiments, run again."""

import sys

import tyro

from experiments.command import reproduce
from torchcaps.cli.errors import explain_errors


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a wrong call, or something that the user can mend, exits with code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    with explain_errors("experiments", debug=debug):
        words = [argument for argument in arguments if argument != "--debug"]
        tyro.cli(reproduce, prog="python -m experiments", args=words)


if __name__ == "__main__":
    main()
