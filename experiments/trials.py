"""Experiments on validation data, to choose settings by. The test split is never evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchcaps.train.recipe import Recipe
from torchcaps.train.recipes import recipe


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe with some fields changed, and what is asked by it."""

    group: str
    name: str
    base: str
    changes: dict[str, Any] = field(default_factory=dict)
    asks: str = ""

    @property
    def recipe(self) -> Recipe:
        return recipe(self.base, **self.changes)

    def as_json(self) -> dict[str, Any]:
        return {"group": self.group, "base": self.base, "changes": self.changes, "asks": self.asks}


FREM, FRMS, EM, CNN = (f"smallnorb-{method}-small" for method in ("frem", "frms", "em", "cnn"))

TURNTABLE = "turntable-frem-small"
FOLDS = 5  # toys of a class
ALL_FOLDS = tuple(range(FOLDS))
HARD_FOLDS = (0, 2, 4)  # which hold out toys that no other of their class resembles
DEFORMED: dict[str, Any] = {"stretch": 0.2, "turn": 10.0}  # as other toys of the kind might look


def two_epochs(group: str, name: str, base: str, asks: str, **changes: Any) -> Trial:
    """A trial on smallNORB that is over in minutes."""
    return Trial(group=group, name=name, base=base, changes={"epochs": 2} | changes, asks=asks)


def in_folds(
    group: str, name: str, base: str, asks: str, *, folds: Sequence[int] = ALL_FOLDS, **changes: Any
) -> list[Trial]:
    """A trial in several folds; all five ask of each of the 25 training toys once."""

    def in_fold(fold: int) -> Trial:
        asked = asks if fold == folds[0] else "with other toys held out"
        return two_epochs(group, name + f"-fold-{fold}" * (fold > 0), base, asked, **changes, fold=fold)

    return [in_fold(fold) for fold in folds]


def on_hybrid64(name: str, asks: str, **changes: Any) -> Trial:
    """A trial with the network and the images of table 1."""
    fields = {"batch_size": 50, "transform_std": 2.0, **changes}
    return Trial(group="hybrid64", name=name, base="smallnorb-frem-short", changes=fields, asks=asks)


# The second series: both cameras, batch norm after all convolutions and on the poses that routing gives, cross entropy,
# no decoder; the paper's network ("full"), the CNN's convolutions with capsules after them ("pooled"), and the CNN.
BOTH: dict[str, Any] = {"camera": "both", "resize": 48, "batch_size": 50, "norm": "batch", "rate": 2e-3}
FULL = BOTH | {"loss": "cross-entropy", "reconstruction": 0.0, "routing_rate": 1.0, "transform_std": 0.03}
# softmax(log pi_j - d / h) for the couplings, h = 16 to begin with; eq. 8 as ever
LOG_PRIOR: dict[str, Any] = {"kernel": "gaussian", "normalize": "sum", "bandwidth": 8.0}
LOG_PRIOR |= {"activation_kernel": "epanechnikov", "activation_bandwidth": 1.0}
POOLED: dict[str, Any] = {"model": "poolcaps32", "class_shared": False, "class_coordinates": False}
SHARED: dict[str, Any] = {"class_shared": True, "class_coordinates": True}
CROPPED: dict[str, Any] = {"size": 32, "resize": 48, "epochs": 12, "cutmix": 0.0, "unmixed": 0.0}


def full(name: str, asks: str, *, folds: Sequence[int] = HARD_FOLDS, **changes: Any) -> list[Trial]:
    """The paper's network, normalised."""
    return in_folds("normalised", name, FREM, asks, folds=folds, **FULL | changes)


def pooled(name: str, asks: str, base: str = FREM, **changes: Any) -> list[Trial]:
    """Capsules after the CNN's convolutions and poolings."""
    return in_folds("pooled", name, base, asks, **FULL | {"model": "poolcaps32"} | changes)


def head(name: str, asks: str, base: str = FREM, **changes: Any) -> list[Trial]:
    """Class capsules alone, after all of the CNN's convolutions and poolings."""
    return in_folds("head", name, base, asks, **FULL | SHARED | {"model": "headcaps32"} | changes)


def normed_cnn(name: str, asks: str, **changes: Any) -> list[Trial]:
    """The CNN, normalised."""
    return in_folds("normalised", name, CNN, asks, **BOTH | changes)


NORMED = [
    *normed_cnn("cnn-norm", "the baseline to beat"),
    *full("full", "the paper's network", folds=ALL_FOLDS),
    *full("full-seed-1", "what another seed changes", seed=1),
    *full("full-norm-none", "what does the norm bring?", norm=None, transform_std=0.5),
    *full("full-norm-convolutions", "norms after the convolutions only", norm_poses=False),
    *full("full-rate-6e-3", "the rates of the first series", rate=6e-3, routing_rate=4.0),
    *full("full-std-0.5", "votes further apart at the start", transform_std=0.5),
    *full("full-std-1", "further still", folds=(0,), transform_std=1.0),
    *full("full-std-2", "as far as poses keep their size without norm", folds=(0,), transform_std=2.0),
    *full("full-bandwidth", "couplings whose bandwidth each layer learns", learn_bandwidth=True),
    *full(
        "full-log-prior",
        "pi in log space, for three iterations, with a bandwidth that is learned",
        iterations=3,
        learn_bandwidth=True,
        routing_options=LOG_PRIOR,
    ),
    *full("full-shared", "class matrices shared over places, with coordinates", **SHARED),
    *full("full-fields-3", "overlapping 3x3 fields in the last two stages", fields=(2, 3, 3), paddings=(0, 1, 1)),
    *full("full-spread", "the paper's loss", loss="spread"),
    *full("full-margin", "another loss", loss="margin"),
    *full("full-mixup", "means of two images", mixup=0.2),
    *full("full-decoder", "does reconstruction help to generalise?", reconstruction=0.002),
    *full("full-one-iteration", "without routing: means of votes", iterations=1),
    *full("full-three-iterations", "couplings that follow poses further", iterations=3),
    *pooled("pooled", "maxima where the paper's network takes means of votes"),
    *normed_cnn("cnn-norm-seed-1", "what another seed changes", folds=HARD_FOLDS, seed=1),
    *pooled("pooled-seed-1", "what another seed changes", folds=HARD_FOLDS, seed=1),
    *pooled("pooled-shared", "can 512 matrices per class memorise where parts lie?", **SHARED),
    *pooled("pooled-shared-seed-1", "what another seed changes", folds=HARD_FOLDS, seed=1, **SHARED),
    *pooled("pooled-shared-frms", "FRMS with what is best for FREM", folds=HARD_FOLDS, base=FRMS, **SHARED),
    *head("head", "routing in the place of the CNN's last layer only"),
    *head("head-frms", "FRMS with what was chosen", base=FRMS),
    *head("head-em", "EM with what was chosen", base=EM),
    *head(
        "head-own",
        "with matrices of their own for each place",
        folds=HARD_FOLDS,
        class_shared=False,
        class_coordinates=False,
    ),
    *pooled("pooled-mixup", "means of two images", folds=HARD_FOLDS, mixup=0.2),
    *normed_cnn("cnn-mixup", "the same for the CNN", folds=HARD_FOLDS, mixup=0.2),
    *pooled("pooled-spread", "the paper's loss", folds=HARD_FOLDS, loss="spread"),
    *pooled("pooled-fields-3", "overlapping 3x3 fields", folds=HARD_FOLDS, fields=(3,), paddings=(1,)),
    *pooled("pooled-decoder", "does reconstruction help to generalise?", folds=HARD_FOLDS, reconstruction=0.002),
    *pooled("pooled-one-iteration", "without routing: means of votes", folds=HARD_FOLDS, iterations=1),
    *pooled("pooled-three-iterations", "couplings that follow poses further", folds=HARD_FOLDS, iterations=3),
    *pooled("pooled-bandwidth", "couplings whose bandwidth each layer learns", folds=HARD_FOLDS, learn_bandwidth=True),
    *pooled(
        "pooled-log-prior",
        "pi in log space, for three iterations, with a bandwidth that is learned",
        folds=HARD_FOLDS,
        iterations=3,
        learn_bandwidth=True,
        routing_options=LOG_PRIOR,
    ),
    *pooled("pooled-std-0.01", "the paper's smallest standard deviation", folds=HARD_FOLDS, transform_std=0.01),
    *pooled("pooled-std-0.1", "votes further apart at the start", folds=HARD_FOLDS, transform_std=0.1),
    *pooled("pooled-std-0.3", "further still", folds=HARD_FOLDS, transform_std=0.3),
    *pooled("pooled-std-1", "as far as the network without norm needs them", folds=HARD_FOLDS, transform_std=1.0),
    *pooled("pooled-norm-convolutions", "norms after the convolutions only", folds=HARD_FOLDS, norm_poses=False),
    *pooled("pooled-margin", "another loss", folds=HARD_FOLDS, loss="margin"),
    *pooled("pooled-frms", "does it generalise better?", folds=HARD_FOLDS, base=FRMS),
    *pooled("pooled-em", "does it generalise better?", folds=HARD_FOLDS, base=EM),
]

# What two epochs do not tell apart.
LONGER: list[Trial] = []
for _seed in (0, 1):
    _end = "-6-epochs" + f"-seed-{_seed}" * _seed
    _six: dict[str, Any] = {"epochs": 6, "seed": _seed}
    LONGER += normed_cnn(f"cnn-norm{_end}", "three times as long", **_six)
    LONGER += pooled(f"pooled-shared{_end}", "shared matrices, as long", **_six, **SHARED)
    LONGER += head(f"head{_end}", "three times as long", **_six)

# All training images are learned within a few epochs: what keeps a network from learning them by heart?
AT_FIRST: dict[str, Any] = {"epochs": 6, "cutmix": 0.5, "unmixed": 0.25}
AVERAGED: dict[str, Any] = {"epochs": 6, "average_epochs": 2}
LONGER += [
    *head("head-mixup-6-epochs", "means of two images", folds=(2,), epochs=6, mixup=0.2),
    *normed_cnn("cnn-mixup-6-epochs", "the same for the CNN", folds=(2,), epochs=6, mixup=0.2),
    *head("head-one-iteration-6-epochs", "without routing: means of votes", folds=(2,), epochs=6, iterations=1),
    *head("head-cutmix-6-epochs", "squares of other images in half of the batches", epochs=6, cutmix=0.5),
    *normed_cnn("cnn-cutmix-6-epochs", "the same for the CNN", epochs=6, cutmix=0.5),
    *head("head-cutmix-at-first-6-epochs", "not in the last epochs", **AT_FIRST),
    *normed_cnn("cnn-cutmix-at-first-6-epochs", "the same for the CNN", **AT_FIRST),
    *head("head-cutmix-all-6-epochs", "in all batches but the last epochs'", **AT_FIRST | {"cutmix": 1.0}),
    *head("head-decay-6-epochs", "weights that decay", **AT_FIRST, weight_decay=0.3),
    *head("head-average-6-epochs", "the mean of the weights over the last two epochs", folds=HARD_FOLDS, **AVERAGED),
]

# Larger images, in networks of as many convolutions and of one more.
_larger = "larger crops, of larger images"
LONGER += [
    *head("head-48-3-epochs", _larger, folds=(1, 4), epochs=3, size=48, resize=64),
    *head("head-48-deep-3-epochs", _larger, folds=(0, 1, 4), epochs=3, size=48, resize=64, model="headcaps64"),
    *head("head-64-deep-3-epochs", _larger, folds=(1, 4), epochs=3, size=64, resize=84, model="headcaps64"),
]

# Other sets than smallNORB: do the settings that were chosen on toys suit them?
MOVED: dict[str, Any] = {"shift": 2, "flip": True}
PLAIN_CNN: dict[str, Any] = {"norm": "batch", "rate": 2e-3}
ONE_CAMERA = {name: value for name, value in FULL.items() if name not in ("camera", "resize")}
HEAD = ONE_CAMERA | SHARED | {"model": "headcaps32"}


OTHER_SETS = [
    two_epochs(group, f"{data}-{name}", f"{data}-{method}-short", asks, **changes)
    for group, data, name, method, asks, changes in (
        ("Fashion-MNIST", "fashion-mnist", "full", "frem", "the paper's network, normalised", ONE_CAMERA),
        ("Fashion-MNIST", "fashion-mnist", "head", "frem", "class capsules after the CNN's convolutions", HEAD),
        ("Fashion-MNIST", "fashion-mnist", "cnn-norm", "cnn", "the baseline to beat", PLAIN_CNN),
        ("Fashion-MNIST", "fashion-mnist", "head-moved", "frem", "images shifted and mirrored", HEAD | MOVED),
        ("CIFAR-10", "cifar10", "head", "frem", "class capsules after the CNN's convolutions", HEAD),
    )
]

# In the order of the report's table; a new one goes to the end of its group. Those that failed stay.
TRIALS = [
    *in_folds("start", "frem", FREM, "what the others are compared with"),
    two_epochs("start", "frem-seed-1", FREM, "what another seed changes", seed=1),
    *in_folds("start", "cnn", CNN, "the baseline to beat"),
    two_epochs("crops", "frem-48", FREM, "larger shifts of the crop, which cuts objects", resize=48),
    two_epochs("crops", "cnn-48", CNN, "the same for the CNN", resize=48),
    two_epochs("jitter", "frem-set", FREM, "jitter that survives standardisation", standardise="set"),
    two_epochs("jitter", "cnn-set", CNN, "the same for the CNN", standardise="set"),
    two_epochs("jitter", "frem-set-flip", FREM, "mirrored toys are toys too", standardise="set", flip=True),
    two_epochs("jitter", "frem-set-strong", FREM, "twice as strong", standardise="set", brightness=0.25, contrast=0.8),
    *in_folds("deformed", "frem-deformed", FREM, "other toys of the same kinds", folds=HARD_FOLDS, **DEFORMED),
    two_epochs("deformed", "cnn-deformed", CNN, "the same for the CNN", **DEFORMED),
    two_epochs("cameras", "frem-both", FREM, "both cameras as two channels", camera="both"),
    two_epochs("cameras", "cnn-both", CNN, "the same for the CNN", camera="both"),
    two_epochs(
        "cameras", "frem-each", FREM, "each as an image of its own in training, as many steps", camera="each", epochs=1
    ),
    two_epochs("decoder", "frem-no-decoder", FREM, "does reconstruction help to generalise?", reconstruction=0.0),
    two_epochs("decoder", "frem-decoder-0.02", FREM, "ten times its weight", reconstruction=0.02),
    two_epochs("weights", "frem-decay", FREM, "L2 of the weights", weight_decay=0.3),
    two_epochs(
        "class capsules",
        "frem-shared",
        FREM,
        "matrices shared over places, with coordinates",
        class_shared=True,
        class_coordinates=True,
    ),
    two_epochs(
        "bandwidth",
        "frem-bandwidth-0.25",
        FREM,
        "sharper routing: couplings of the middle layers are nearly uniform",
        routing_options={"bandwidth": 0.25},
    ),
    two_epochs("weights", "frem-paper-convolutions", FREM, "the paper's start of the convolutions", conv_init="paper"),
    two_epochs("matrices", "frem-std-0.01", FREM, "the paper's smallest", transform_std=0.01),
    two_epochs("matrices", "frem-std-0.1", FREM, "the paper's standard deviation of the matrices", transform_std=0.1),
    *in_folds("matrices", "frem-std-1", FREM, "the paper's largest", folds=HARD_FOLDS, transform_std=1.0),
    two_epochs(
        "matrices", "frem-std-2", FREM, "poses as large after a layer of routing as before it", transform_std=2.0
    ),
    two_epochs("methods", "frms", FRMS, "does it generalise better?", rate=6e-3),
    two_epochs("methods", "em", EM, "does it generalise better?"),
    two_epochs("rate", "frem-rate-3e-3", FREM, "half the rate", rate=3e-3),
    two_epochs("rate", "frem-constant", FREM, "a constant rate of 1e-3", rate=1e-3, schedule="constant"),
    Trial(group="rate", name="frem-6-epochs", base=FREM, changes={"epochs": 6}, asks="does it generalise later?"),
    on_hybrid64(
        "hybrid64",
        "does the larger network learn at half the rate?",
        epochs=1,
        rate=3e-3,
        transform_std=0.5,
        standardise="set",
    ),
    on_hybrid64("hybrid64-std-2", "poses as large after a layer of routing as before it", epochs=1, rate=3e-3),
    on_hybrid64("hybrid64-std-1", "poses that shrink, but less", epochs=1, rate=3e-3, transform_std=1.0),
    on_hybrid64("hybrid64-plain", "at two thirds of that rate", epochs=2, transform_std=1.0),
    on_hybrid64("hybrid64-deformed", "other toys of the same kinds", epochs=2, transform_std=1.0, **DEFORMED),
    Trial(
        group="Fashion-MNIST",
        name="other-set",
        base="fashion-mnist-frem-short",
        changes={"epochs": 1},
        asks="do smallNORB's settings suit other sets?",
    ),
    Trial(group="turntable", name="turntable", base=TURNTABLE, asks="the built-in set"),
    Trial(group="turntable", name="turntable-deformed", base=TURNTABLE, changes=DEFORMED, asks="and its toys deformed"),
    *(
        Trial(group="turntable", name=f"turntable-{name}", base=f"turntable-{method}", changes=changes, asks=asks)
        for name, method, changes, asks in (
            ("pooled", "frem", {**CROPPED, **POOLED}, "smallNORB's new settings, both cameras"),
            ("cnn-norm", "cnn", CROPPED, "the same for the CNN"),
        )
    ),
    *OTHER_SETS,
    *NORMED,
    *LONGER,
]
