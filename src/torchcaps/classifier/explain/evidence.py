"""What supports the class: what its log-odds gain on the way from a flat background to the image, place by place.

At every site of the network (the pixels, and the input map of each routing layer) the gain is a sum over places: how
much the capsules there change, times how much that change counts for the class. A vote of the background is the same at
the start as at the end, so it says nothing, however strongly it is coupled. For the pixels these are integrated
gradients (Sundararajan et al. 2017); at each site all places together make up the whole gain.
"""

import torch
from torch import Tensor

from torchcaps.classifier.explain.gradients import background, enlarge
from torchcaps.classifier.explain.relevance import Relevance
from torchcaps.classifier.explain.slopes import IMAGE, Site, find_slopes
from torchcaps.models.network import Network

STEPS = 12


def gains(network: Network, image: Tensor, label: Tensor, steps: int = STEPS) -> dict[str, Tensor]:
    """What each place adds to the log-odds, by site, ``[B, H, W]``; negative where it is evidence against the class."""
    start = background(image).expand_as(image)
    before = find_slopes(network, start, label)
    total = {name: torch.zeros_like(site.maps[0][:, 0]) for name, site in before.items()}
    for step in range(1, steps + 1):
        here = find_slopes(network, torch.lerp(start, image, step / steps), label)
        for name in here:
            total[name] += _gain(before[name], here[name])
        before = here
    return total


def _gain(before: Site, after: Site) -> Tensor:
    """Change times slope ``[B, H, W]``, by the trapezoidal rule."""
    pairs = zip(*before, *after, strict=True)  # maps and slopes before, maps and slopes after
    return torch.stack([((b - a) * (slope_a + slope_b) / 2).sum(1) for a, slope_a, b, slope_b in pairs]).sum(0)


def integrated_gradients(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """The gains of the pixels; evidence against the class is ignored."""
    return Relevance(gains(network, image, label)[IMAGE].clamp(min=0), {})


def evidence(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """The mean of all sites' gains on the pixels; evidence against the class is ignored.

    As each site sums to the same gain, so does their mean.
    """
    found = gains(network, image, label)
    side = image.shape[-1]
    # A place of a coarse map stands for several pixels, which share its gain.
    spread = [enlarge(gain, side) * (gain[0].numel() / side**2) for gain in found.values()]  # [B, S, S] each
    layers = {name: gain.clamp(min=0) for name, gain in found.items() if name != IMAGE}
    return Relevance(torch.stack(spread).sum(0).clamp(min=0), layers)
