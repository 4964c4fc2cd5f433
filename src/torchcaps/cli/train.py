"""``torchcaps train``: the recipe's name first, then any of its fields."""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import tyro

from torchcaps.data.specs import SPECS
from torchcaps.errors import OptionError, UserError
from torchcaps.report import write_report
from torchcaps.train.devices import Device, Precision
from torchcaps.train.recipe import Recipe, read_recipe
from torchcaps.train.recipes import folder_recipe, recipe
from torchcaps.train.resume import check_longer
from torchcaps.train.run import Finished

OWN_OPTIONS = ("--output", "--resume", "--devices", "--nodes", "--device", "--precision")  # of the run, not its recipe


def train_command(arguments: list[str]) -> tuple[Callable[..., None], list[str]]:
    """The command, with the recipe that the arguments name as its default, and the arguments after the name."""
    name, rest = (arguments[0], arguments[1:]) if arguments and not arguments[0].startswith("-") else (None, arguments)
    asks_for_help = "-h" in rest or "--help" in rest
    resumed = None if asks_for_help else _value(rest, "--resume")
    if resumed is not None:
        given = [
            argument
            for argument in rest
            if argument.startswith("--") and argument.partition("=")[0] not in (*OWN_OPTIONS, "--epochs")
        ]
        if name is not None or given:
            extra = " ".join([name] if name else given)
            raise OptionError(
                f"--resume continues the run with its own settings: leave {extra} out, or start a new run; "
                "only --epochs may be larger, to extend a finished run"
            )
        if _value(rest, "--output") is not None:
            raise OptionError("--resume continues in the run's own folder: leave --output out")
        start = read_recipe(Path(resumed))
    else:
        data = _value(rest, "--data")
        start = recipe(name) if name else _recipe_for(data)
        start = start if data is None else start.with_fields(data=data)
        pretrained = None if asks_for_help else _value(rest, "--pretrained")
        if pretrained is not None:
            start = start.with_fields(pretrained=pretrained)
        if _value(rest, "--validation") == "none" and start.optimisation.weights == "best":
            start = start.with_fields(validation="none", weights="last")  # there is nothing to choose by
        if (size := _value(rest, "--size") or "").isdecimal():
            start = start.with_fields(size=int(size))

    def train(
        recipe: Annotated[Recipe, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes] = start,
        output: Path | None = None,
        resume: Path | None = None,
        devices: int = 1,
        nodes: int = 1,
        device: Device = "auto",
        precision: Precision | None = None,
    ) -> None:
        """Train a network: torchcaps train [RECIPE] [--field value ...].

        A recipe is SET-METHOD (our settings), SET-METHOD-paper (the paper's), SET-METHOD-short (the paper's network,
        a few epochs), SET-METHOD-small (the same on small images) or SET-METHOD-quick (our network, small images, some
        minutes). SET is smallnorb, mnist, fashion-mnist, cifar10 or turntable; METHOD is frem, frms, em or cnn. The
        default is turntable-frem-quick: two minutes on two idle cores, no download. With --data FOLDER the default is
        a recipe that suits the images in the folder.

        With --pretrained, it fine-tunes a network that was trained before.

        Ctrl-C finishes the current step, saves a checkpoint and stops; --resume continues.

        Args:
            recipe: The recipe's fields.
            output: The run folder; default: runs/NAME-NUMBER.
            resume: The folder of an interrupted run, to resume it; or of a finished one, to extend it to --epochs.
            devices: Processes (or GPUs) per machine.
            nodes: Machines; torchrun or SLURM starts the processes.
            device: Where to train; auto is a CUDA GPU where there is one, or else the CPU.
            precision: 32 bits, or a mix with bfloat16 or float16; default: 32, or the resumed run's.
        """
        from torchcaps.train.run import require_lightning
        from torchcaps.train.run import train as run

        require_lightning()
        from torchcaps.train.checkpoints import Interrupted
        from torchcaps.train.loop import Resources, is_first_process, resources

        try:
            if resume is None:
                recipe.refuse_without_effect(_fields(rest))
            asked = Resources(devices=devices, nodes=nodes, device=device, precision=precision)
            if resume is not None and _value(rest, "--epochs") is not None:
                check_longer(resume, recipe.optimisation.epochs)
            finished = run(recipe, output=output, resume=resume, resources=resources(asked))
        except Interrupted as interrupted:
            if not is_first_process():
                return  # one that ends with an error would have the first one killed
            print(f"\n{interrupted}; continue with: torchcaps train --resume {interrupted.folder}")
            raise SystemExit(interrupted.exit_code) from None
        except UserError:
            if is_first_process():
                raise
        else:
            report_on(finished)

    return train, rest


def report_on(finished: Finished | None) -> None:
    """Write the page of a finished run, and say where it is; its pictures are of test images."""
    if finished is not None and finished.evaluation is not None:
        print("report:", write_report(finished.folder, finished.classifier, finished.splits.test, finished.evaluation))


def _recipe_for(data: str | None) -> Recipe:
    """The recipe for a data set or folder, where nothing else is given."""
    if data is None:
        return recipe()
    if data in SPECS:
        return recipe(f"{data}-frem-quick")
    return folder_recipe(data) if Path(data).expanduser().is_dir() else recipe()


def _fields(arguments: list[str]) -> set[str]:
    """The fields of a recipe that were typed."""
    words = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    return {word.removeprefix("--").replace("-", "_") for word in words}


def _value(arguments: list[str], option: str) -> str | None:
    """What follows an option, or its equals sign; where it is given twice the last one counts, as for tyro."""
    found = None
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == option and following is not None:
            found = following
        elif argument.startswith(f"{option}="):
            found = argument.split("=", 1)[1]
    return found
