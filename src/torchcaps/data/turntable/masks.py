"""Where in turntable's pictures the object is."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.turntable.camera import IMAGE_SIZE
from torchcaps.data.turntable.load import CHANNELS, batches
from torchcaps.data.turntable.march import find_surface
from torchcaps.data.turntable.objects import solid
from torchcaps.data.turntable.plan import Plan, stereo_views
from torchcaps.data.types import Split


def object_masks(split: Split, *, camera: Literal["left", "right", "both"] = "left", seed: int = 0) -> Tensor:
    """How much of each pixel the object covers, 0 to 255, in pictures of turntable: ``[N, C, 96, 96]`` uint8.

    Any part of a split will do: where the object stands follows from the seed and the factors. Shadows are no object.
    """
    category, instance, elevation, azimuth, lighting = (
        values.numpy()
        for values in (split.labels, *map(split.factor, ("instance", "elevation", "azimuth", "lighting")))
    )
    plan = Plan(category, instance, elevation, azimuth // 2, lighting)
    masks = np.zeros((len(plan), 2, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    for kind, number, pairs in batches(plan):
        thing = solid(seed, kind, number)
        views = stereo_views(thing, plan, pairs, seed)
        hits = find_surface(thing, [view.placement.to_object(view.camera) for view in views])
        of_batch = np.zeros((len(pairs), *masks.shape[1:]), dtype=np.uint8)
        of_batch.reshape(-1)[hits.pixel] = np.rint(hits.coverage * 255)
        masks[pairs] = of_batch
    return torch.from_numpy(masks)[:, CHANNELS[camera]]
