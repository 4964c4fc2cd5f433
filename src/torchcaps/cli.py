"""The ``torchcaps`` command."""

import sys
import time
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table


def models(run: bool = False) -> None:
    """Table of all networks and their sizes.

    Args:
        run: Also run a forward and a backward pass of each, on a batch of two, and add the time they take.
    """
    from torchcaps import create_model, list_models

    table = Table("name", "parameters", "in routing", "input", *(["forward + backward"] if run else []))
    for name in list_models():
        model = create_model(name)
        row = [
            name,
            f"{model.parameter_count():,}",
            f"{model.routing_parameter_count():,}",
            f"{model.in_channels}x{model.image_size}x{model.image_size}",
        ]
        table.add_row(*row, *([f"{seconds_of_a_step(model):.2f} s"] if run else []))
    Console().print(table)


def seconds_of_a_step(model: Any) -> float:
    """Time of one forward and backward pass of a network with random input."""
    import torch

    image = torch.randn(2, model.in_channels, model.image_size, model.image_size)
    start = time.perf_counter()
    model(image).activation[:, 0].sum().backward()
    return time.perf_counter() - start


def objective() -> None:
    """Table of the objective's value after each routing iteration, for the docs."""
    from torchcaps.report.objective import markdown

    print(markdown())


def doctor() -> None:
    """What is built, what is in use, and why a backend is not available."""
    from torchcaps.ops.doctor import findings

    table = Table("", "", show_header=False)
    for name, finding in findings().items():
        table.add_row(name, finding)
    Console().print(table)


COMMANDS: dict[str, Callable[..., Any]] = {"models": models, "objective": objective, "doctor": doctor}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a wrong call exits with code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from torchcaps import __version__

        print(f"torchcaps {__version__}")
        return
    tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="torchcaps",
        description="Capsule networks for PyTorch. --version prints the version.",
        args=arguments,
    )
