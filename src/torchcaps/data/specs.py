"""What each data set needs by default: pictures of which kind, cut to which size, looked at how often."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The defaults of a set, for pipelines and recipes."""

    stereo: bool = False
    """Pairs of two cameras, of objects that are seen from known viewpoints."""
    cropped: bool = False
    """Training images are random crops of two thirds of the side (the paper), not whole images."""
    jitter: bool = False
    """Random brightness and contrast."""
    moved: bool = False
    """Also shift and mirror training images, as usual for photographs."""
    size: int = 32
    """Side of the network's input."""
    first_channels: int = 64
    """Of the first convolution."""
    epochs: int = 5
    """Of a short run."""


SPECS = {
    "smallnorb": DatasetSpec(stereo=True, cropped=True, jitter=True, size=64, epochs=6),
    "mnist": DatasetSpec(epochs=3),
    "fashion-mnist": DatasetSpec(),
    "cifar10": DatasetSpec(moved=True, first_channels=256),
    "turntable": DatasetSpec(stereo=True, cropped=True, jitter=True, size=64, epochs=24),
}
FOLDER = DatasetSpec(jitter=True)  # a user's own images


def spec_of(name: str) -> DatasetSpec:
    """The defaults of a set by its name; any other name is a folder of images."""
    return SPECS.get(name, FOLDER)
