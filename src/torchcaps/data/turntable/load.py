"""turntable's images: from the cache, rendered at first use."""

import os
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps.data.locate import cache_folder
from torchcaps.data.turntable.camera import IMAGE_SIZE
from torchcaps.data.turntable.objects import CATEGORIES, solid
from torchcaps.data.turntable.plan import FULL, Plan, plan_split, stereo_views
from torchcaps.data.turntable.render import render
from torchcaps.data.types import DataError, ImageSet, Split
from torchcaps.data.writing import whole_file
from torchcaps.errors import require

Images = NDArray[np.uint8]


def read_images(path: Path, shape: tuple[int, ...]) -> Images | None:
    """The pictures of a file, memory-mapped; None where there is none, or it is not whole."""
    try:
        # Copy on write: torch needs memory that it could write to, and the file must stay as it is.
        images: Images = np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            checksum = int.from_bytes(file.read(4), "little")
    except (OSError, ValueError, EOFError):
        return None
    if images.shape != shape or images.dtype != np.uint8 or not images.flags.c_contiguous:
        return None
    return images if zlib.crc32(images.data) == checksum else None


def write_images(path: Path, images: Images) -> None:
    """Write pictures, and after them a checksum of four bytes, which ``np.load`` does not mind."""
    with whole_file(path) as file:
        np.save(file, images)
        file.write(zlib.crc32(images.data).to_bytes(4, "little"))


BATCH = 24  # pairs at once: fewer cost more for calls, more do not fit into a core's cache


def render_plan(plan: Plan, seed: int, done: Callable[[int], None] = lambda pairs: None) -> NDArray[np.uint8]:
    """The pictures ``[N, 2, 96, 96]`` of a plan; ``done`` is told how many pairs more are finished."""
    images = np.empty((len(plan), 2, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)

    def work(category: int, instance: int, pairs: NDArray[np.int64]) -> None:
        thing = solid(seed, category, instance)
        pictures = render(thing, stereo_views(thing, plan, pairs, seed))
        images[pairs] = pictures.reshape(len(pairs), 2, IMAGE_SIZE, IMAGE_SIZE)
        done(len(pairs))

    workers = ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    try:
        jobs = [workers.submit(work, *job) for job in batches(plan)]
        wait(jobs, return_when=FIRST_EXCEPTION)
        for job in jobs:
            if job.done():
                job.result()
    finally:
        workers.shutdown(cancel_futures=True)  # after an error or Ctrl-C the rest is not rendered
    return images


def batches(plan: Plan) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Category, instance and pairs of each job: a batch shows one object, as its shape is code with fixed numbers."""
    owners = np.stack([plan.category, plan.instance], axis=1)
    jobs = []
    for category, instance in np.unique(owners, axis=0).tolist():
        pairs = np.flatnonzero((plan.category == category) & (plan.instance == instance))
        jobs += [(category, instance, pairs[at : at + BATCH]) for at in range(0, len(pairs), BATCH)]
    return jobs


VERSION = 1  # of the renderer: raise it with every change that shows, so that no old picture is taken from a cache
DEFAULT_PAIRS = 3000

CHANNELS = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2)}


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
        raise DataError(f"turntable: pairs={pairs!r}, expected 1 to {FULL} or 'full'")
    if camera not in CHANNELS:
        raise DataError(f"turntable: camera={camera!r}, expected one of {', '.join(CHANNELS)}")
    if seed < 0:
        raise DataError(f"turntable: seed={seed}, expected 0 or more")
    folder = cache_folder() / "turntable" if folder is None else Path(folder)
    plans = {name: plan_split(name, count, seed) for name in ("train", "test")}
    splits = {}
    for name, plan in plans.items():
        images = _images(folder / f"turntable-v{VERSION}-seed{seed}-{count}-{name}.npy", plan, seed, progress, name)
        splits[name] = _split(images, plan, CHANNELS[camera])
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
    require("rich", "data", "rendering turntable")
    from rich.console import Console  # here: a network is loaded without it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
