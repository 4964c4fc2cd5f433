"""The turntable set: from the cache, or rendered now."""

import sys
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.data.locate import cache_folder
from torchcaps.data.turntable.cache import Images, read_images, write_images
from torchcaps.data.turntable.camera import IMAGE_SIZE
from torchcaps.data.turntable.plan import FULL, Plan, plan_split
from torchcaps.data.turntable.solids import CATEGORIES
from torchcaps.data.turntable.studio import render_plan
from torchcaps.data.types import DataError, ImageSet, Split

VERSION = 1  # of the renderer: raise it with every change that shows, so that no old picture is taken from a cache
DEFAULT_PAIRS = 3000

_CHANNELS = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2)}


def load_turntable(
    folder: Path | None = None,
    *,
    pairs: int | Literal["full"] = DEFAULT_PAIRS,
    camera: Literal["left", "right", "both"] = "left",
    seed: int = 0,
    progress: bool = True,
) -> ImageSet:
    """Objects on a turntable, like smallNORB in structure, rendered here and kept in a folder.

    Five categories of ten instances each, five for training and five others for test, from 9 elevations, 18 azimuths
    and under 6 lightings. ``pairs`` stereo pairs for training and as many for test; ``"full"`` is all 24,300.
    Images are ``[N, 1, 96, 96]``, or ``[N, 2, 96, 96]`` (left, right) with both cameras. Factors are numbered as in
    smallNORB's info files: instance 0 .. 9, elevation 0 .. 8 (30 to 70 degrees), azimuth 0, 2 .. 34 (tens of degrees),
    lighting 0 .. 5.
    """
    count = FULL if pairs == "full" else pairs
    if not isinstance(count, int) or not 1 <= count <= FULL:
        raise DataError(f"turntable: pairs={pairs!r}, wanted 1 to {FULL} or 'full'")
    if camera not in _CHANNELS:
        raise DataError(f"turntable: camera={camera!r}, wanted one of {', '.join(_CHANNELS)}")
    if seed < 0:
        raise DataError(f"turntable: seed={seed}, wanted 0 or more")
    folder = cache_folder() / "turntable" if folder is None else Path(folder)
    plans = {name: plan_split(name, count, seed) for name in ("train", "test")}
    splits = {}
    for name, plan in plans.items():
        images = _images(folder / f"turntable-v{VERSION}-seed{seed}-{count}-{name}.npy", plan, seed, progress, name)
        splits[name] = _split(images, plan, _CHANNELS[camera])
    return ImageSet("turntable", tuple(CATEGORIES), splits["train"], splits["test"], folder)


def _split(images: Images, plan: Plan, channels: slice) -> Split:
    factors = {
        "instance": plan.instance,
        "elevation": plan.elevation,
        "azimuth": plan.azimuth * 2,
        "lighting": plan.lighting,
    }
    tensors = {name: torch.from_numpy(values.astype(np.int64)) for name, values in factors.items()}
    labels = torch.from_numpy(plan.category.astype(np.int64))
    return Split(torch.from_numpy(images)[:, channels], labels, tensors)


def _images(path: Path, plan: Plan, seed: int, progress: bool, name: str) -> Images:
    """The pictures ``[N, 2, 96, 96]`` of a plan."""
    shape = (len(plan), 2, IMAGE_SIZE, IMAGE_SIZE)
    images = read_images(path, shape)
    if images is not None:
        return images
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not (progress and sys.stderr.isatty())) as bar:
        task = bar.add_task(f"rendering turntable, {name}", total=len(plan))
        images = render_plan(plan, seed, lambda pairs: bar.advance(task, pairs))
    try:
        write_images(path, images)
    except DataError as error:
        warnings.warn(f"turntable is not kept for the next time: {error}", stacklevel=3)
        return images
    return images
