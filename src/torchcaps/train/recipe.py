"""All that decides how a run goes and what comes out of it."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from torchcaps.data.pipeline import Standardise
from torchcaps.data.splits import Validation, ViewpointFactor
from torchcaps.errors import OptionError
from torchcaps.nn.initial import ConvInit
from torchcaps.nn.norm import Norm
from torchcaps.runs.folder import RUN, RunFolderError

Camera = Literal["left", "right", "both", "each"]
Loss = Literal["spread", "margin", "cross-entropy"]
Schedule = Literal["constant", "one-cycle"]
Weights = Literal["last", "best"]
WINDOWS = ("fields", "strides", "paddings")  # one number for each capsule layer but the last
TOYS = ("smallnorb", "turntable")  # sets of objects, seen from known viewpoints
CHOICES = {
    "camera": Camera,
    "validation": Validation,
    "standardise": Standardise,
    "loss": Loss,
    "schedule": Schedule,
    "weights": Weights,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Data, network, loss and schedule of a training run."""

    name: str = "custom"
    """What the run folder is called."""

    data: str = "turntable"
    """A data set by its name, or a folder of images with one subfolder a class."""
    root: Path | None = None
    """Where the data set's files are; default: TORCHCAPS_DATA, then the cache folder."""
    full: bool = False
    """All 24,300 + 24,300 stereo pairs of turntable."""
    camera: Camera = "left"
    """Of smallNORB and turntable: one camera, both as two channels, or each in training and the left in the rest."""
    viewpoint: ViewpointFactor | None = None
    """Of smallNORB and turntable: train on some azimuths or elevations, and test on the others and on the same ones."""
    skip_bad: bool = False
    """Of a folder of images, go on without the files that cannot be used."""
    validation: Validation = "auto"
    """What is held out of the training images: whole objects, a random part of each class, or nothing."""
    fold: int = 0
    """Which objects or images are held out: another number, other ones."""
    images: int | None = None
    """At most this many training images, and as many of the others, spread evenly over the split."""

    size: int = 32
    """Side of the network's input."""
    resize: int | None = None
    """Shorter side of the images before a square is cut out; default: the data set's."""
    brightness: float | None = None
    """Jitter adds up to this much to pixels in [0, 1]; default: the data set's."""
    contrast: float | None = None
    """Jitter scales contrast by 1 minus to 1 plus this; default: the data set's."""
    shift: int = 0
    """Shift training images by up to this many pixels."""
    stretch: float = 0.0
    """Deform training images: width and height by factors of up to e to this, either way, and shear by up to this."""
    turn: float = 0.0
    """Turn training images by up to this many degrees, either way."""
    flip: bool = False
    """Mirror half of the training images."""
    standardise: Standardise = "image"
    """Zero mean and unit deviation of each image, each of its channels (cameras), or the training set; or neither."""
    mixup: float = 0.0
    """Train on means of two images with weights from Beta of this; 0 leaves images as they are."""

    model: str = "hybrid32"
    """The network: see torchcaps models."""
    routing: str = "frem"
    """The routing method of a network with capsules."""
    iterations: int = 2
    """Routing iterations."""
    transform_std: float = 0.1
    """Deviation of the transformation matrices at the start."""
    routing_options: dict[str, float | str] = field(default_factory=dict)
    """Further options of the routing method: kernel, distance, normalize, bandwidth."""
    learn_bandwidth: bool = False
    """Learn the bandwidth of the couplings of each layer; its start is the option's."""
    conv_init: ConvInit = "paper"
    """Start of the convolutions: the paper's deviation of 0.01, or PyTorch's own."""
    first_channels: int = 64
    """Channels of the first convolution; with capsules, 16 to a capsule."""
    norm: Norm = None
    """Batch normalisation of convolutions and of the poses between capsule layers, or none."""
    norm_poses: bool = True
    """With a norm, also normalise the poses that capsule layers give."""
    fields: tuple[int, ...] = ()
    """Side of the receptive field of each capsule layer but the last; default: the network's."""
    strides: tuple[int, ...] = ()
    """Stride of each capsule layer but the last; default: the network's."""
    paddings: tuple[int, ...] = ()
    """Padding of each capsule layer but the last; default: the network's."""
    residual: bool = True
    """Convolutions between the capsule layers."""
    class_shared: bool = False
    """Class capsules share their matrices over all places."""
    class_coordinates: bool = False
    """Add the coordinates of a place to the votes for the classes."""

    loss: Loss = "spread"
    """On the class activations; without capsules, cross-entropy is on the logits."""
    reconstruction: float = 0.0005
    """Weight of the reconstruction loss; 0 leaves the decoder out."""

    epochs: int = 50
    """Passes over the training images."""
    batch_size: int = 50
    """Images in a step, over all processes."""
    rate: float = 1e-3
    """Adam's learning rate, at its highest."""
    routing_rate: float = 1.0
    """Factor on the rate of the transformation matrices, whose votes are averaged and so move little."""
    schedule: Schedule = "constant"
    """The rate over the run: constant, or one cycle of warming up and cooling down to nothing."""
    warm_up: float = 0.3
    """Share of the run in which a one-cycle rate rises."""
    weight_decay: float = 0.0
    """L2 of the weights, applied apart from the gradient (AdamW)."""
    weights: Weights = "last"
    """Which weights are kept in the end: the last, or those with the lowest validation error."""
    average_epochs: int = 0
    """Keep the mean of the weights over so many last epochs instead of the last; 0 does not."""
    seed: int = 0
    """Of the initial weights, the order of the images, and every random transform."""
    checkpoint_every: int = 200
    """Steps between checkpoints, besides those at the end of each epoch."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        positive = {"size": self.size, "epochs": self.epochs, "batch_size": self.batch_size, "rate": self.rate}
        positive |= {"checkpoint_every": self.checkpoint_every, "routing_rate": self.routing_rate}
        for name, value in positive.items():
            if not value > 0:
                raise OptionError(f"{name} is {value}, wanted more than 0")
        if self.images is not None and self.images < self.batch_size:
            raise OptionError(
                f"images is {self.images}, fewer than a batch: wanted at least batch_size, {self.batch_size}"
            )
        not_negative = {"reconstruction": self.reconstruction, "weight_decay": self.weight_decay, "mixup": self.mixup}
        for name, value in not_negative.items():
            if not 0 <= value < math.inf:
                raise OptionError(f"{name} is {value}, wanted 0 or more")
        if self.mixup and self.has_decoder:
            raise OptionError(
                f"mixup is {self.mixup}, reconstruction {self.reconstruction}: mixed images are not reconstructed, "
                "so a decoder would learn nothing; set reconstruction=0"
            )
        if not 0 <= self.warm_up < 1:
            raise OptionError(f"warm_up is {self.warm_up}, wanted a share of the run: at least 0, below 1")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                raise OptionError(f"{name} is {getattr(self, name)!r}, wanted one of {', '.join(get_args(choices))}")
        if self.viewpoint is not None:
            if self.viewpoint not in get_args(ViewpointFactor):
                raise OptionError(f"viewpoint is {self.viewpoint!r}, expected {' or '.join(get_args(ViewpointFactor))}")
            if self.data not in TOYS:
                raise OptionError(f"viewpoint is for {' and '.join(TOYS)}, not for {self.data}")
        for name in WINDOWS:
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple) or not all(isinstance(size, int) for size in sizes):
                raise OptionError(
                    f"{name} is {sizes!r}, expected whole numbers, one for each capsule layer but the last"
                )
            if sizes and not self.has_capsules:
                raise OptionError(f"{name} is for networks with capsules, not for {self.model}")
        if not isinstance(self.average_epochs, int) or not 0 <= self.average_epochs <= self.epochs:
            raise OptionError(f"average_epochs is {self.average_epochs}, expected 0 to {self.epochs}, the run's epochs")
        if self.average_epochs and self.weights == "best":
            raise OptionError(
                f"average_epochs is {self.average_epochs} and weights 'best', as recipes for a user's images have: "
                "expected weights='last' with it"
            )
        if self.weights == "best" and self.validation == "none":
            raise OptionError("weights='best' needs validation data to choose by: leave validation='none' out")

    @property
    def has_capsules(self) -> bool:
        return not self.model.startswith("cnn")

    @property
    def has_decoder(self) -> bool:
        return self.has_capsules and self.reconstruction > 0

    def as_json(self) -> dict[str, Any]:
        """The fields as values that JSON has."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return list(value)
            return str(value) if isinstance(value, Path) else value

        return {name: plain(value) for name, value in asdict(self).items()}


def recipe_from_json(values: dict[str, Any]) -> Recipe:
    """What `Recipe.as_json` wrote."""
    known = {item.name for item in fields(Recipe)}
    if unknown := sorted(set(values) - known):
        raise OptionError(f"a recipe has no field {', '.join(unknown)}: it was written by another version")
    root = values.get("root")
    sizes = {name: tuple(values[name]) for name in WINDOWS if name in values}
    return Recipe(**{**values, **sizes, "root": None if root is None else Path(root)})


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run."""
    path = folder / RUN
    if not path.is_file():
        raise RunFolderError(f"{folder} is not the folder of a training run: it has no {RUN}")
    try:
        return recipe_from_json(json.loads(path.read_text(encoding="utf-8"))["recipe"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} cannot be used: {error}") from error
