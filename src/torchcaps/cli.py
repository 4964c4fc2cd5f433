"""The ``torchcaps`` command."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from torchcaps.bench import bench
from torchcaps.classifier.commands import evaluate_command, predict_command
from torchcaps.errors import UserError
from torchcaps.reproduce.command import reproduce
from torchcaps.train.command import train_command


def models(run: bool = False) -> None:
    """Table of all networks and their sizes.

    Args:
        run: Also run a forward and a backward pass of each, on a batch of two, and add the time they take.
    """
    from torchcaps import create_model, list_models
    from torchcaps.pretrained.shipped import listing

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
    Console().print(f"pretrained: {listing()}", highlight=False)


def seconds_of_a_step(model: Any) -> float:
    """Time of one forward and backward pass of a network with random input, the second one: the first also loads."""
    import torch

    image = torch.randn(2, model.in_channels, model.image_size, model.image_size)
    for _ in range(2):
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


def data(
    action: Positional[Literal["list", "fetch", "verify", "show", "export"]],
    name: Positional[str | None] = None,
    root: Path | None = None,
    output: Path | None = None,
    full: bool = False,
    skip_bad: bool = False,
) -> None:
    """List, fetch, verify or show the data sets; or export turntable in smallNORB's format.

    Args:
        action: What to do.
        name: Which set: mnist, fashion-mnist, cifar10, smallnorb or turntable; for show also a folder of images.
        root: The set's own folder, or a folder of such folders.
        output: The file that show writes (default NAME.png), or the folder that export writes to.
        full: All 24,300 + 24,300 stereo pairs of turntable.
        skip_bad: Of a folder of images, go on without the files that cannot be used.
    """
    from torchcaps.data.command import Call, run

    run(Call(action=action, name=name, root=root, output=output, full=full, skip_bad=skip_bad))


COMMANDS: dict[str, Callable[..., Any]] = {
    "eval": evaluate_command,
    "predict": predict_command,
    "models": models,
    "objective": objective,
    "doctor": doctor,
    "data": data,
    "bench": bench,
    "reproduce": reproduce,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a wrong call, or something that the user can mend, exits with code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        from torchcaps import __version__

        print(f"torchcaps {__version__}")
        return
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        train, rest = train_command(arguments[1:] if arguments[:1] == ["train"] else [])
        tyro.extras.subcommand_cli_from_dict(
            {"train": train, **COMMANDS},
            prog="torchcaps",
            description="Capsule networks for PyTorch. --version prints the version, --debug shows tracebacks.",
            args=["train", *rest] if arguments[:1] == ["train"] else arguments,
        )
    except KeyboardInterrupt:
        if debug:
            raise
        print("torchcaps: stopped by Ctrl-C", file=sys.stderr)
        raise SystemExit(130) from None
    except UserError as error:
        if debug:
            raise
        print(f"torchcaps: {error}", file=sys.stderr)
        raise SystemExit(2) from None
