"""The training loop: Lightning carries it, this file says with what."""

import errno
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console

from torchcaps.classifier import Classifier, Evaluation, evaluate
from torchcaps.data import BatchLoader, DataError, Split
from torchcaps.data.stream import Stream
from torchcaps.errors import OptionError
from torchcaps.functional.registry import routing_method
from torchcaps.runs.folder import BEST, LAST, RunFolderError
from torchcaps.train.averaging import MeanOfWeights
from torchcaps.train.batch_norm import shared_batch_norm
from torchcaps.train.checkpoints import Checkpoints, WholeFiles, read_checkpoint, read_checkpoint_of
from torchcaps.train.class_weights import class_weights
from torchcaps.train.devices import (
    DEFAULT_PRECISION,
    OF_LIGHTNING,
    Device,
    Precision,
    accelerator,
    check_devices,
    check_precision,
)
from torchcaps.train.frozen import FrozenBody
from torchcaps.train.metrics import Metrics
from torchcaps.train.module import TrainingModule
from torchcaps.train.progress import ProgressLine
from torchcaps.train.recipe import Recipe
from torchcaps.train.stopping import Patience

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a run may use: processes (or GPUs) on each machine, and machines; of which kind, and with how many bits."""

    devices: int = 1
    nodes: int = 1
    device: Device = "auto"
    precision: Precision | None = None  # 32, or that of the run that is resumed

    def __post_init__(self) -> None:
        if self.devices < 1 or self.nodes < 1:
            raise OptionError(f"devices is {self.devices}, nodes is {self.nodes}: expected at least 1 of each")
        check_devices(self.accelerator, self.devices)
        check_precision(self.precision or DEFAULT_PRECISION, self.accelerator)

    @property
    def accelerator(self) -> str:
        return accelerator(self.device)

    @property
    def processes(self) -> int:
        return self.devices * self.nodes


def resources(asked: Resources) -> Resources:
    """As asked for, or as many processes as ``torchrun`` has started."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        if asked.nodes > 1 and not os.environ.keys() & {"SLURM_NTASKS", "MASTER_ADDR"}:
            raise OptionError(
                f"nodes is {asked.nodes}, but nothing has started processes on the others, for which this one would "
                'wait: use torchrun or srun (docs/training.md, "Several processes or machines")'
            )
        return asked
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return replace(asked, devices=local, nodes=int(os.environ["WORLD_SIZE"]) // local)


def is_first_process() -> bool:
    """Of several that train together: the one that writes and speaks."""
    return rank() == 0


def rank() -> int:
    """This process's number among those that train together."""
    return int(getattr(rank_zero_only, "rank", 0) or 0)


def follow(
    recipe: Recipe,
    classifier: Classifier,
    train: Split | Stream,
    validation: Split | Stream | None,
    folder: Path,
    *,
    resources: Resources,
    console: Console,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
    advice: str | None = None,
    former_epochs: Sequence[int] = (),
) -> Metrics:
    """Train a classifier as a recipe says; with ``resume`` continue from the folder's last checkpoint.

    In the end the classifier has the recipe's choice of weights: the last, their mean over the last epochs, or those
    best on validation. ``former_epochs`` are the lengths that the run had before it was extended. ``callbacks`` and
    ``loggers`` are Lightning's, beside ours. ``advice`` is what to do where the folder can no longer be written, by
    default to resume.
    """
    pipeline = classifier.pipeline
    settings = recipe.optimisation
    make_loader = partial(BatchLoader, seed=settings.seed, rank=rank(), world_size=resources.processes)
    training = make_loader(train, pipeline, batch_size=settings.batch_size, train=True, mixing=recipe.mixing)
    weights = class_weights(settings.class_weights, train.labels, classifier.classes)
    module = TrainingModule(classifier.network, recipe, len(training), weights, former_epochs)
    checkpoint = folder / LAST if resume else None
    step = 0 if checkpoint is None else check_checkpoint(checkpoint, module, training)
    validate = None
    if validation is not None and len(validation):
        # each process takes its part; all of it where there is not an image for each
        parts = resources.processes if resources.processes <= len(validation) else 1
        part = validation.take(torch.arange(rank() % parts, len(validation), parts))
        prepared = classifier.prepare(part) if isinstance(part, Split) else part
        validate = partial(evaluate_any, classifier, prepared)
    metrics = Metrics(folder, training_error=not recipe.images.are_mixed, validate=validate)
    # what has a state comes before the checkpoints, which hold it
    ours: list[Callback] = [metrics, *([FrozenBody()] if recipe.network.freeze else [])]
    if settings.average_epochs:
        fresh = make_loader(training.split, pipeline, batch_size=settings.batch_size, train=True)
        ours.append(MeanOfWeights(settings.average_epochs, fresh))
    if settings.patience:
        ours.append(Patience(settings.patience, metrics, console))
    ours += [*callbacks, Checkpoints(folder, settings.checkpoint_every, metrics), ProgressLine(metrics, console)]
    norms = shared_batch_norm(classifier.network) if resources.processes > 1 else nullcontext()
    with quiet_lightning(), norms:
        trainer = Trainer(
            max_epochs=settings.epochs,
            accelerator=resources.accelerator,
            precision=OF_LIGHTNING[resources.precision or DEFAULT_PRECISION],
            devices=resources.devices,
            num_nodes=resources.nodes,
            strategy=_strategy(recipe, resources),
            gradient_clip_val=settings.clip_gradients or None,
            logger=[TensorBoardLogger(folder, name="", version="tensorboard", purge_step=step + 1), *loggers],
            callbacks=ours,
            plugins=[WholeFiles()],
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),  # ours is no such
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        for logger in loggers:
            logger.log_hyperparams(recipe.as_json())
        with our_errors(folder, advice):
            trainer.fit(module, training, ckpt_path=checkpoint, weights_only=True)
    keep_chosen(recipe, classifier, folder)
    return metrics


def evaluate_any(classifier: Classifier, images: Split | Stream) -> Evaluation:
    """Evaluate a classifier on images in memory, or on a stream of them, part by part."""
    if isinstance(images, Split):
        return evaluate([classifier], images)
    found = [evaluate([classifier], part) for part in images.parts()]
    label, activation = (torch.cat([getattr(part, name) for part in found]) for name in ("label", "activation"))
    return replace(found[0], label=label, activation=activation)


def keep_chosen(recipe: Recipe, classifier: Classifier, folder: Path) -> None:
    """Give a classifier the recipe's choice of the weights that its run has left, and make it ready to use."""
    if recipe.optimisation.weights == "best" and (folder / BEST).is_file():
        best = read_checkpoint(folder / BEST)["state_dict"]
        classifier.network.load_state_dict({name.removeprefix("network."): value for name, value in best.items()})
    classifier.to("cpu").eval()


def _strategy(recipe: Recipe, resources: Resources) -> DDPStrategy | str:
    if resources.processes == 1:
        return "auto"
    backend = "nccl" if resources.accelerator == "cuda" else "gloo"
    # Then the convolution of the activations has no gradient, which processes that share gradients have to know.
    unused = not routing_method(recipe.network.routing).uses_activation
    return DDPStrategy(process_group_backend=backend, find_unused_parameters=unused)


def check_checkpoint(path: Path, module: TrainingModule, training: BatchLoader) -> int:
    """The step of a checkpoint, if it is one of this network and of these images."""
    values = read_checkpoint_of(module.network, path)
    try:
        training.load_state_dict(values["callbacks"]["Checkpoints"]["loader"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is a checkpoint of a run on other images: {error}") from error
    return int(values["global_step"])


@contextmanager
def our_errors(folder: Path, advice: str | None = None) -> Iterator[None]:
    """A disk that is full or may not be written, and Ctrl-C, which Lightning makes an exit."""
    try:
        yield
    except (OSError, DataError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in CANNOT_WRITE:
            raise
        what = f"{cause.filename or folder} cannot be written: {cause.strerror}"
        if isinstance(error, DataError):
            what, _, _ = str(error).partition(";")
        resume = f"earlier files are intact: fix this, then run torchcaps train --resume {folder}"
        raise RunFolderError(f"{what}; {advice or resume}") from error
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without Lightning's banners and advice, which concern its own defaults."""
    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        # of the first convolution's gradient: with one input channel its strides differ, its memory does not
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
