"""The ``torchcaps`` command."""

import sys
import time
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console

from torchcaps.cli.bench import bench
from torchcaps.cli.compare import compare_command
from torchcaps.cli.data import data_command
from torchcaps.cli.doctor import doctor
from torchcaps.cli.errors import explain_errors
from torchcaps.cli.evaluate import evaluate_command
from torchcaps.cli.predict import predict_command
from torchcaps.cli.tables import fitting_table
from torchcaps.cli.train import train_command


def models(run: bool = False) -> None:
    """List the networks and their sizes.

    Args:
        run: Also time a forward and a backward pass of each, on a batch of two.
    """
    from torchcaps import create_model, list_models
    from torchcaps.models.pretrained import listing

    rows = []
    for name in list_models():
        model = create_model(name)
        row = [
            name,
            f"{model.parameter_count():,}",
            f"{model.routing_parameter_count():,}",
            f"{model.in_channels}x{model.image_size}x{model.image_size}",
        ]
        rows.append([*row, *([f"{1000 * seconds_of_a_step(model):.1f} ms"] if run else [])])
    console = Console(highlight=False)
    headings = ("name", "parameters", "in routing", "input", *(["forward + backward"] if run else []))
    console.print(fitting_table(console, headings, rows, right=headings[1:], drop=("in routing",)))
    console.print(f"pretrained: {listing()}")


def seconds_of_a_step(model: Any) -> float:
    """Time of one forward and backward pass of a network with random input, the second one: the first also loads."""
    import torch

    image = torch.randn(2, model.in_channels, model.image_size, model.image_size)
    for _ in range(2):
        start = time.perf_counter()
        model(image).activation[:, 0].sum().backward()
    return time.perf_counter() - start


COMMANDS: dict[str, Callable[..., Any]] = {
    "eval": evaluate_command,
    "predict": predict_command,
    "compare": compare_command,
    "models": models,
    "doctor": doctor,
    "data": data_command,
    "bench": bench,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a wrong call, or something that the user can fix, exits with code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    with explain_errors("torchcaps", debug=debug):
        if arguments == ["--version"]:
            from torchcaps import __version__

            print(f"torchcaps {__version__}")
            return
        train, rest = train_command(arguments[1:] if arguments[:1] == ["train"] else [])
        tyro.extras.subcommand_cli_from_dict(
            {"train": train, **COMMANDS},
            prog="torchcaps",
            description="Capsule networks for PyTorch. --version prints the version, --debug shows tracebacks.",
            args=["train", *rest] if arguments[:1] == ["train"] else arguments,
        )
