"""Render a whole plan.

Threads gain about a fifth on two cores, as much of the work is short calls that hold the interpreter; processes would
gain more, but would have to import torch first, and the main module of whoever calls us.
"""

import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.turntable.camera import IMAGE_SIZE
from torchcaps.data.turntable.plan import Plan
from torchcaps.data.turntable.render import render
from torchcaps.data.turntable.scenes import stereo_views
from torchcaps.data.turntable.solids import solid

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
        jobs = [workers.submit(work, *job) for job in _batches(plan)]
        wait(jobs, return_when=FIRST_EXCEPTION)
        for job in jobs:
            if job.done():
                job.result()
    finally:
        workers.shutdown(cancel_futures=True)  # after an error or Ctrl-C the rest is not rendered
    return images


def _batches(plan: Plan) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Category, instance and pairs of each job: a batch shows one object, as its shape is code with fixed numbers."""
    owners = np.stack([plan.category, plan.instance], axis=1)
    batches = []
    for category, instance in np.unique(owners, axis=0).tolist():
        pairs = np.flatnonzero((plan.category == category) & (plan.instance == instance))
        batches += [(category, instance, pairs[at : at + BATCH]) for at in range(0, len(pairs), BATCH)]
    return batches
