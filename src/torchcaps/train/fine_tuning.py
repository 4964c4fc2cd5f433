"""Fine-tuning: the body of a network that was trained before, with a new class layer and decoder."""

from dataclasses import asdict, fields
from typing import Any

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.files import load
from torchcaps.classifier.image_files import CAMERAS
from torchcaps.errors import OptionError
from torchcaps.train.recipe import WINDOWS, NetworkSettings

OF_THE_DATA = ("num_classes", "in_channels", "image_size", "decoder")
OF_NEW_LAYERS = ("conv_init", "transform_std", "class_shared", "class_coordinates")
TRAINED_WITH = ("loss", "rate", "routing_rate")


def pretrained_fields(source: str) -> dict[str, Any]:
    """The fields of a recipe that a pretrained network brings along: its own, its input's, and what trained it."""
    classifier = load(source)
    network = asdict(settings_of(classifier))
    del network["pretrained"], network["freeze"]
    images: dict[str, Any] = {"size": classifier.pipeline.crop, "standardise": classifier.pipeline.standardise}
    if classifier.network.in_channels != CAMERAS:
        images["camera"] = "left"  # of sets that have both
    recipe = classifier.card.get("recipe")
    trained = recipe.get("optimisation") if isinstance(recipe, dict) else None
    known = {name: trained[name] for name in TRAINED_WITH if name in trained} if isinstance(trained, dict) else {}
    return network | images | known


def settings_of(classifier: Classifier) -> NetworkSettings:
    """The settings that a classifier's network was made with: the inverse of `NetworkSettings.options`."""
    options = {name: value for name, value in classifier.options.items() if name not in OF_THE_DATA}
    own = {item.name: options.pop(item.name) for item in fields(NetworkSettings) if item.name in options}
    own |= {name: tuple(own[name]) for name in WINDOWS if name in own}
    return NetworkSettings(model=classifier.model, **own, routing_options=options)


def take_body(source: str, classifier: Classifier) -> None:
    """Put the body of a pretrained network into a new one, or say why it does not fit."""
    pretrained = load(source)
    found, expected = classifier.network, pretrained.network
    if found.in_channels != expected.in_channels:
        raise OptionError(
            f"the images have {_channels(found.in_channels)}, the pretrained network {source} takes "
            f"{_channels(expected.in_channels)}: "
            "convert the images (of a stereo set: --camera both), choose another network, or train without --pretrained"
        )
    mine, theirs = (
        {"model": one.model, "size": one.network.image_size, **settings_of(one).options()}
        for one in (classifier, pretrained)
    )
    for name in mine | theirs:
        if name not in OF_NEW_LAYERS and mine.get(name) != theirs.get(name):
            raise OptionError(
                f"{name} is {mine.get(name)!r}, the pretrained network {source} has {theirs.get(name)!r}: "
                f"leave {name} out, or train without --pretrained"
            )
    if not expected.head:
        raise OptionError(f"model {pretrained.model!r} does not say what its head is: expected Network.head to do so")
    body = {name: value for name, value in expected.state_dict().items() if expected.is_body(name)}
    found.load_state_dict(body, strict=False)


def _channels(count: int) -> str:
    return {1: "1 channel (grey)", 3: "3 channels (colour)"}.get(count, f"{count} channels")
