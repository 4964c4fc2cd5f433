"""All that decides how a run goes and what comes out of it, in the parts that use it."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from torchcaps.data.mixing import Mixing
from torchcaps.data.pipeline import Standardise
from torchcaps.data.specs import SPECS, spec_of
from torchcaps.data.splits import Validation, ViewpointFactor
from torchcaps.errors import UserError
from torchcaps.functional.registry import list_routings, routing_method
from torchcaps.models import list_models, network_class
from torchcaps.models.files import LARGEST, LIMITS, SIDE
from torchcaps.nn.initial import ConvInit
from torchcaps.nn.norm import Norm
from torchcaps.runs.folder import RUN, RunFolderError
from torchcaps.train.checks import RecipeError, check_types

Camera = Literal["left", "right", "both", "each"]
Loss = Literal["spread", "margin", "cross-entropy"]
Schedule = Literal["constant", "one-cycle"]
Weights = Literal["last", "best"]
ClassWeights = Literal["none", "balanced"] | tuple[float, ...]
OTHER_NAMES = {"learning_rate": ["rate"], "lr": ["rate"], "max_epochs": ["epochs"]}  # what other libraries call a field
MIXING = ("mixup", "cutmix", "unmixed")
WINDOWS = ("fields", "strides", "paddings")  # one number for each capsule layer but the last
MOST_CHANNELS = 4096
MOST = {"epochs": LARGEST, "batch_size": LARGEST, "checkpoint_every": LARGEST, "seed": 2**63 - 1}
STEREO = [name for name, spec in SPECS.items() if spec.stereo]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which images are trained on, and which are held out."""

    data: str = "turntable"
    """A data set by its name, or a folder of images with one subfolder per class."""
    root: Path | None = None
    """Where the data set's files are; default: TORCHCAPS_DATA, then the cache folder."""
    full: bool = False
    """All 24,300 + 24,300 stereo pairs of turntable."""
    camera: Camera = "left"
    """smallNORB and turntable only: one camera, both as two channels, or each as an image (evaluation: the left)."""
    viewpoint: ViewpointFactor | None = None
    """smallNORB and turntable only: train on some azimuths or elevations; test on the others and on the same ones."""
    skip_bad: bool = False
    """In a folder of images, skip the files that cannot be used."""
    validation: Validation = "auto"
    """What is held out of the training images: whole objects, a random part of each class, or nothing."""
    fold: int = 0
    """Which objects or images are held out; each number selects different ones."""
    images: int | None = None
    """At most this many training images, and as many validation and test images, spread evenly over the split."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_types(self, not_negative=("fold",), most={"fold": LARGEST})
        if self.viewpoint is not None and not spec_of(self.data).stereo:
            raise RecipeError(f"viewpoint is for {' and '.join(STEREO)}, not for {self.data}")


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """How images become the network's input."""

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
    """Deform training images: scale width and height by up to exp(this) or its inverse, and shear by up to this."""
    turn: float = 0.0
    """Turn training images by up to this many degrees, either way."""
    flip: bool = False
    """Mirror half of the training images."""
    standardise: Standardise = "image"
    """Zero mean and unit variance of each image, each of its channels (cameras), or the training set; or neither."""
    mixup: float = 0.0
    """Mixup: blend two training images with a weight from Beta(a, a), where a is this; 0: off."""
    cutmix: float = 0.0
    """CutMix: the share of batches in which a square of each training image is replaced by another image's; 0: off."""
    unmixed: float = 0.0
    """Share of the run, at its end, in which images are not mixed."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        most = {**dict.fromkeys(("size", "resize", "shift"), SIDE), "cutmix": 1, "unmixed": 1}
        check_types(self, positive=("size",), not_negative=("mixup", "cutmix", "unmixed"), most=most)

    @property
    def are_mixed(self) -> bool:
        """Whether training images are made of two, at least at first."""
        return bool(self.mixup or self.cutmix)

    def pipeline_fields(self) -> dict[str, Any]:
        """Those of the pipeline that are set here; the others are the data set's."""
        values = {name: value for name, value in asdict(self).items() if name not in ("size", *MIXING)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The network, and how its weights start."""

    model: str = "hybrid32"
    """The network: see torchcaps models."""
    first_channels: int = 64
    """Channels of the first convolution; with capsules, 16 per capsule."""
    conv_init: ConvInit = "paper"
    """Start of the convolutions: the paper's standard deviation of 0.01, or PyTorch's own."""
    norm: Norm = None
    """Batch normalisation of convolutions and of the poses between capsule layers, or none."""
    routing: str = "frem"
    """The routing method of a network with capsules: frem, frms, em, agreement or frms_variant."""
    iterations: int = 2
    """Routing iterations."""
    transform_std: float = 0.1
    """Standard deviation of the transformation matrices at the start."""
    routing_options: dict[str, float | str] = field(default_factory=dict)
    """Further options of the routing method, NAME VALUE: kernel, distance, normalize, bandwidth; of em final_lambda."""
    learn_bandwidth: bool = False
    """Learn the bandwidth of the couplings of each layer; it starts at the bandwidth option."""
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
    pretrained: str | None = None
    """Fine-tune: start from the body of this run's network, or of a pretrained one by name, with its settings."""
    freeze: bool = False
    """With --pretrained, train only the new class layer and decoder."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_types(self, most={"first_channels": MOST_CHANNELS, "iterations": LIMITS["iterations"]})
        if self.freeze and self.pretrained is None:
            raise RecipeError(
                "freeze is for the body of a pretrained network: give pretrained with it, or leave it out"
            )
        if self.model not in list_models():
            raise RecipeError(f"model is {self.model!r}, expected one of {', '.join(list_models())}")
        if self.routing not in list_routings():
            raise RecipeError(f"routing is {self.routing!r}, expected one of {', '.join(list_routings())}")
        known = sorted(routing_method(self.routing).options.keys() - {"iterations"})  # which is a field of its own
        for name in self.routing_options:
            if name not in known:
                raise RecipeError(
                    f"routing_options has {name!r}, {self.routing} has {', '.join(known) or 'no options'}"
                )
        for name in WINDOWS:
            if getattr(self, name) and not self.has_capsules:
                raise RecipeError(f"{name} is for networks with capsules, not for {self.model}")

    @property
    def has_capsules(self) -> bool:
        return network_class(self.model).has_capsules

    def options(self) -> dict[str, Any]:
        """What `create_model` gets."""
        always = ("first_channels", "conv_init", "norm")
        of_capsules = [name for name in OF_CAPSULES if name not in ("routing_options", *WINDOWS)]
        options = {name: getattr(self, name) for name in (*always, *(of_capsules if self.has_capsules else ()))}
        options |= {name: list(sizes) for name in WINDOWS if (sizes := getattr(self, name))}
        return options | (self.routing_options if self.has_capsules else {})


OF_ALL_NETWORKS = ("model", "first_channels", "conv_init", "norm", "pretrained", "freeze")
OF_CAPSULES = tuple(item.name for item in fields(NetworkSettings) if item.name not in OF_ALL_NETWORKS)


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """The loss and the optimiser."""

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
    """The rate over the run: constant, or one cycle of warm-up and decay to zero."""
    warm_up: float = 0.3
    """Share of the run in which a one-cycle rate rises."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW)."""
    weights: Weights = "last"
    """Which weights are kept in the end: the last, or those with the lowest validation error."""
    patience: int = 0
    """Stop after this many epochs without a lower validation error; 0: off."""
    class_weights: ClassWeights = "none"
    """Weights of the classes in the loss: balanced (rare classes count more), or a number per class, in their order."""
    clip_gradients: float = 0.0
    """Scale gradients whose norm is larger down to this norm; 0: off."""
    average_epochs: int = 0
    """Keep the mean of the weights over this many last epochs instead of the final weights; 0: off."""
    seed: int = 0
    """Seed of the initial weights, the order of the images and all random transforms."""
    checkpoint_every: int = 200
    """Steps between checkpoints, besides those at the end of each epoch."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        positive = ("epochs", "batch_size", "rate", "routing_rate", "checkpoint_every")
        not_negative = ("reconstruction", "weight_decay", "patience", "clip_gradients", "seed")
        check_types(self, positive=positive, not_negative=not_negative, most=MOST)
        given = self.class_weights if isinstance(self.class_weights, tuple) else (1.0,)
        if not given or not all(0 < weight < math.inf for weight in given):
            raise RecipeError(f"class_weights is {self.class_weights}, expected a number above 0 per class")
        if self.patience and self.average_epochs:
            raise RecipeError(
                f"patience is {self.patience} and average_epochs is {self.average_epochs}: a run that stops early has "
                "no mean over its last epochs; set one of them to 0"
            )
        if not 0 <= self.warm_up < 1:
            raise RecipeError(f"warm_up is {self.warm_up}, expected a share of the run: at least 0, below 1")
        if not 0 <= self.average_epochs <= self.epochs:
            raise RecipeError(f"average_epochs is {self.average_epochs}, expected 0 to {self.epochs}, the run's epochs")
        if self.average_epochs and self.weights == "best":
            raise RecipeError(
                f"average_epochs is {self.average_epochs} and weights is 'best', the default for your own images: "
                "set weights='last' with it"
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run in four parts. `Recipe.of` and `with_fields` take their fields side by side, as one types them."""

    name: str = "custom"
    """What the run folder is called."""
    data: DataSettings = DataSettings()
    images: ImageSettings = ImageSettings()
    network: NetworkSettings = NetworkSettings()
    optimisation: Optimisation = Optimisation()

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        most, batch_size, images = self.data.images, self.optimisation.batch_size, self.images
        if most is not None and most < batch_size:
            raise RecipeError(f"images is {most}, fewer than a batch: expected at least batch_size, {batch_size}")
        if images.are_mixed and self.has_decoder:
            raise RecipeError(
                f"mixup is {images.mixup}, cutmix {images.cutmix}, reconstruction {self.optimisation.reconstruction}: "
                "mixed images are not reconstructed, so a decoder would learn nothing; set reconstruction=0, or leave "
                "mixup and cutmix out"
            )
        if self.optimisation.weights == "best" and self.data.validation == "none":
            raise RecipeError(
                "weights is 'best', which needs validation images to choose by: set weights to 'last', "
                "or leave validation 'none' out"
            )
        if self.optimisation.patience and self.data.validation == "none":
            raise RecipeError("patience needs validation data to watch: leave validation='none' out")

    @classmethod
    def of(cls, **changes: Any) -> Self:
        """A recipe from fields of all its parts.

        >>> Recipe.of(name="mine", data="mnist", epochs=5).optimisation.epochs
        5
        """
        return cls().with_fields(**changes)

    def with_fields(self, **changes: Any) -> Self:
        """The recipe with other values of some fields, whichever part they are of.

        ``pretrained`` brings the fields along that its network was made and trained with; another ``size`` of crops
        also scales what they are cut from, ``resize``.
        """
        if isinstance(source := changes.get("pretrained"), str):
            from torchcaps.train.fine_tuning import pretrained_fields  # which needs this file

            changes = pretrained_fields(source) | changes
        if not spec_of(str(changes.get("data", self.data.data))).stereo:
            changes = {"camera": "left"} | changes  # the only one
        size, resize = changes.get("size"), self.images.resize
        if isinstance(size, int) and resize is not None:
            changes = {"resize": round(resize * size / self.images.size)} | changes
        return self.with_just(**changes)

    def with_just(self, **changes: Any) -> Self:
        """The recipe with these fields changed, and no others."""
        name = changes.pop("name", self.name)
        if not isinstance(name, str):
            raise RecipeError(f"name is {name!r}, expected a string")
        if unknown := [key for key in changes if key not in PART_OF]:
            near = OTHER_NAMES.get(unknown[0]) or get_close_matches(unknown[0], PART_OF, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else "."
            raise RecipeError(f"a recipe has no field {', '.join(unknown)}{meant} Its fields: {', '.join(PART_OF)}")
        parts = {
            part: replace(getattr(self, part), **{key: value for key, value in changes.items() if PART_OF[key] == part})
            for part in dict.fromkeys(PART_OF[key] for key in changes)
        }
        return replace(self, name=name, **parts)

    def flat(self) -> dict[str, Any]:
        """All fields but the name, side by side."""
        return {key: getattr(getattr(self, part), key) for key, part in PART_OF.items()}

    @property
    def has_decoder(self) -> bool:
        return self.network.has_capsules and self.optimisation.reconstruction > 0

    def without_effect(self) -> dict[str, str]:
        """The fields that change nothing, as the recipe is, and why."""
        found: dict[str, str] = {}
        if not self.network.has_capsules:
            found |= dict.fromkeys(
                (*OF_CAPSULES, "routing_rate", "reconstruction"), f"{self.network.model} has no capsules"
            )
        if not self.images.are_mixed:
            found["unmixed"] = "mixup and cutmix are 0, so no images are mixed"
        if self.optimisation.schedule == "constant":
            found["warm_up"] = "the schedule is constant"
        if self.data.validation == "none":
            found["fold"] = "validation is none, so nothing is held out"
        return found

    def refuse_without_effect(self, given: Iterable[str]) -> None:
        """Raise for a field that the user gave, not to switch something off, and that changes nothing.

        What a named recipe brings along may be so: its fields are for networks with and without capsules.
        """
        values, given = self.flat(), set(given)
        for name, reason in self.without_effect().items():
            if name in given and (value := values[name]):
                raise RecipeError(f"{name} {value} has no effect: {reason}; leave it out")

    @property
    def mixing(self) -> Mixing:
        """How training images are made of two, and in how many epochs."""
        epochs = round((1 - self.images.unmixed) * self.optimisation.epochs)
        return Mixing(mixup=self.images.mixup, cutmix=self.images.cutmix, epochs=epochs)

    def as_json(self) -> dict[str, Any]:
        """The parts as values that JSON has."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(one) for key, one in value.items()}
            if isinstance(value, tuple):
                return list(value)
            return str(value) if isinstance(value, Path) else value

        return {key: plain(value) for key, value in asdict(self).items()}


PARTS: dict[str, type[Any]] = {
    "data": DataSettings,
    "images": ImageSettings,
    "network": NetworkSettings,
    "optimisation": Optimisation,
}
PART_OF = {item.name: part for part, kind in PARTS.items() for item in fields(kind)}


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of what `Recipe.as_json` wrote, side by side, with the name."""
    if missing := [part for part in ("name", *PARTS) if part not in values]:
        raise RecipeError(
            f"the recipe lacks {', '.join(missing)}, so another version wrote it; "
            "in a clone of the repository, update it with python -m experiments.tools.convert"
        )
    parts = [values[part] for part in PARTS]
    if not all(isinstance(part, dict) for part in parts):
        raise RecipeError(f"the parts of a recipe ({', '.join(PARTS)}) are not all JSON objects")
    return {"name": values["name"], **{key: value for part in parts for key, value in part.items()}}


def recipe_from_json(values: dict[str, Any]) -> Recipe:
    """What `Recipe.as_json` wrote."""
    found = flatten(values)
    for name in (*WINDOWS, "class_weights"):
        if isinstance(found.get(name), list):
            found[name] = tuple(found[name])
    if isinstance(found.get("root"), str):
        found["root"] = Path(found["root"])
    return Recipe().with_just(**found)  # a pretrained network may be gone by now


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run."""
    path = folder / RUN
    if not path.is_file():
        raise RunFolderError(f"{folder} is not the folder of a training run: it has no {RUN}")
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(run, dict) or not isinstance(run.get("recipe"), dict):
            raise RecipeError("it holds no recipe")
        return recipe_from_json(run["recipe"])
    except (OSError, UserError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} cannot be used: {error}") from error
