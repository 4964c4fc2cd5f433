"""Relevance from slopes at the image itself: gradient x input, gradient x activation, Grad-CAM."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps.classifier.explain.relevance import Relevance
from torchcaps.classifier.explain.slopes import IMAGE, Site, find_slopes
from torchcaps.models.network import Network


def gradient_input(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """Slope by each pixel, times how far the pixel is from the background."""
    site = find_slopes(network, image, label)[IMAGE]
    return Relevance(((image - background(image)) * site.slopes[0]).sum(1).clamp(min=0), {})


def gradient_activation(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """Slope by each capsule's pose and activation, times these, where positive; the heat is that of the first ones."""
    sites = find_slopes(network, image, label)
    layers = {name: _by_capsule(site).clamp(min=0).sum(1) for name, site in sites.items() if name != IMAGE}
    return Relevance(enlarge(next(iter(layers.values())), image.shape[-1]), layers)


def _by_capsule(site: Site) -> Tensor:
    """Map times slope, by capsule ``[B, n, H, W]``, or by channel where there are no capsules."""
    first, *others = (maps * slopes for maps, slopes in zip(*site, strict=True))
    if not others:
        return first
    [activation] = others
    return first.reshape(len(first), activation.shape[1], -1, *first.shape[2:]).sum(2) + activation


def grad_cam(network: Network, image: Tensor, label: Tensor) -> Relevance:
    """Grad-CAM (Selvaraju et al. 2017) on the last pose map: each channel weighed by its mean slope."""
    name, site = list(find_slopes(network, image, label).items())[-1]
    pose, slope = site.maps[0], site.slopes[0]  # [B, 16 n, H, W]; of a network without capsules its last features
    cam = (slope.mean((2, 3), keepdim=True) * pose).sum(1).clamp(min=0)  # [B, H, W]
    return Relevance(enlarge(cam, image.shape[-1]), {name: cam})


def background(image: Tensor) -> Tensor:
    """What an image ``[B, C, H, W]`` has at its edge, as the median of each channel: ``[B, C, 1, 1]``."""
    rows, columns = image[:, :, (0, -1)], image[:, :, :, (0, -1)]
    edge = torch.cat([rows.flatten(2), columns.flatten(2)], 2)  # [B, C, 2 (W + H)]
    return edge.median(2).values[:, :, None, None]


def enlarge(maps: Tensor, size: int) -> Tensor:
    """Maps ``[B, H, W]`` on the pixels ``[B, S, S]``, in between linearly."""
    return interpolate(maps.unsqueeze(1), size=(size, size), mode="bilinear", align_corners=False).squeeze(1)
