"""What is measured. A case says it in plain values, so that it can be sent to another process, and builds the step."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import chain, repeat
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchcaps.bench.plan import HYBRID
from torchcaps.data import BatchLoader, Split, preset
from torchcaps.functional import spread_loss
from torchcaps.models import HYBRID64, HybridNetwork, Network, create_model
from torchcaps.nn import RoutedLayer
from torchcaps.ops.backend import use_backend
from torchcaps.types import Capsules, Classified

Step = Callable[[], object]
NetworkMode = Literal["inference", "training"]
RoutingMode = Literal["forward", "forward+backward"]
SEED = 0


@dataclass(frozen=True, kw_only=True)
class NetworkCase:
    """Inference (forward) or a training step (forward, spread loss, backward, Adam) of a network."""

    model: str
    mode: NetworkMode
    batch: int
    backend: Any = "native"
    channels_last: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    capsule_factor: float = 1  # of the capsules in every layer of hybrid64
    plain_convolutions: bool = False  # PyTorch's in the residual blocks, as they are in the CNN, not the core's
    device: str = "cpu"

    def network(self) -> Network:
        if self.capsule_factor == 1:
            return create_model(self.model, **self.options)
        stages = [replace(stage, capsules=int(self.capsule_factor * stage.capsules)) for stage in HYBRID64]
        options = {"num_classes": 5, "image_size": 64, **self.options}
        return HybridNetwork(stages, first_channels=int(self.capsule_factor * 64), **options)

    def build(self) -> Step:
        torch.manual_seed(SEED)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        model = self.network().to(self.device)
        for part in model.modules():
            if isinstance(part, nn.Conv2d):  # routing matrices have four dimensions, too, and stay as they are
                part.to(memory_format=layout)  # type: ignore[call-overload]
        model.train(self.mode == "training")
        image = torch.randn(self.batch, model.in_channels, model.image_size, model.image_size)
        image = image.to(self.device, memory_format=layout)
        label = torch.randint(model.num_classes, (self.batch,)).to(self.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        residual: Any = "reference" if self.plain_convolutions else self.backend

        def inference() -> None:
            with use_backend(self.backend, residual=residual), torch.no_grad():
                model(image)

        def training() -> None:
            with use_backend(self.backend, residual=residual):
                optimizer.zero_grad()
                torch.autograd.backward(spread_loss(model(image).activation, label, margin=0.5))
                optimizer.step()

        return inference if self.mode == "inference" else training


@dataclass(frozen=True)
class LayerShape:
    """A capsule layer of a network, and the map that comes to it."""

    name: str
    in_capsules: int
    height: int
    width: int
    fields: int  # receptive fields of one image
    inputs: int  # capsules in a field
    outputs: int
    pose_shape: tuple[int, ...]  # of what comes out, without the batch
    activation_shape: tuple[int, ...]


def layer_shapes(model: Network) -> list[LayerShape]:
    """The layers with routing, in the order in which they run."""
    shapes: list[LayerShape] = []

    def record(name: str, layer: RoutedLayer, came: Capsules, went: Capsules | Classified) -> None:
        height, width = came.pose.shape[2:]
        inputs, outputs = layer.weight.shape[:2]
        pose, activation = (tuple(maps.shape[1:]) for maps in went)
        fields = math.prod(activation) // outputs
        shapes.append(LayerShape(name, layer.in_capsules, height, width, fields, inputs, outputs, pose, activation))

    hooks = [
        layer.register_forward_hook(lambda layer, inputs, output, name=name: record(name, layer, inputs[0], output))
        for name, layer in model.named_modules()
        if isinstance(layer, RoutedLayer)
    ]
    with torch.no_grad():
        model(torch.zeros(1, model.in_channels, model.image_size, model.image_size))
    for hook in hooks:
        hook.remove()
    return shapes


@cache
def hybrid_layers() -> tuple[LayerShape, ...]:
    """The capsule layers of ``hybrid64``."""
    with use_backend("reference"):  # leaves nothing behind that a native step would have to make
        return tuple(layer_shapes(create_model(HYBRID)))


@dataclass(frozen=True, kw_only=True)
class RoutingCase:
    """Routing alone: capsule layers of ``hybrid64`` on random capsules, forward, or forward and backward.

    Several layers run forward one after another and then backward, and so hold what a network would hold.
    """

    layers: tuple[int, ...]
    method: str
    mode: RoutingMode
    batch: int
    backend: Any = "native"
    device: str = "cpu"

    def build(self) -> Step:
        model, shapes = hybrid(self.method, self.device), [hybrid_layers()[n] for n in self.layers]
        chosen = [
            (model.get_submodule(shape.name), random_capsules(shape, self.batch, self.device)) for shape in shapes
        ]
        outputs = [shape for layer in shapes for shape in (layer.pose_shape, layer.activation_shape)]
        gradients = [random_gradient((self.batch, *shape), self.device) for shape in outputs]

        def forward() -> None:
            with use_backend(self.backend), torch.no_grad():
                for layer, capsules in chosen:
                    layer(capsules)

        def forward_backward() -> None:
            for layer, capsules in chosen:
                layer.zero_grad()
                for maps in capsules:
                    maps.grad = None
            with use_backend(self.backend):
                results = [maps for layer, capsules in chosen for maps in layer(capsules)]
                torch.autograd.backward(results, gradients)

        return forward if self.mode == "forward" else forward_backward


# The cases of a run share these: they are gigabytes otherwise. forget_inputs() frees them.
@cache
def hybrid(method: str, device: str) -> Network:
    """The network whose layers are run alone."""
    torch.manual_seed(SEED)
    return create_model(HYBRID, routing=method).to(device)


@cache
def random_capsules(shape: LayerShape, batch: int, device: str) -> Capsules:
    """Random capsules in channels-last layout, as the layers before give them."""

    def leaf(maps: Tensor) -> Tensor:
        return maps.to(device, memory_format=torch.channels_last).requires_grad_()

    pose = torch.randn(batch, 16 * shape.in_capsules, shape.height, shape.width)
    return Capsules(leaf(pose), leaf(torch.rand(batch, shape.in_capsules, shape.height, shape.width)))


@cache
def random_gradient(shape: tuple[int, ...], device: str) -> Tensor:
    """A random gradient for a layer's output, laid out as a convolution after it would give it."""
    layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    return torch.randn(shape).to(device, memory_format=layout)


def forget_inputs() -> None:
    """Free what the routing cases share."""
    hybrid.cache_clear()
    random_capsules.cache_clear()
    random_gradient.cache_clear()


def loader_step(batch: int) -> Step:
    """A training batch of smallNORB's size from the loader: 64x64 crops of 96x96, with jitter."""
    images = torch.randint(256, (40 * batch, 1, 96, 96), dtype=torch.uint8)
    split = Split(images, torch.zeros(len(images), dtype=torch.int64))
    loader = BatchLoader(split, preset("smallnorb"), batch_size=batch, train=True)
    batches = chain.from_iterable(repeat(loader))  # epoch after epoch
    return lambda: next(batches)


@dataclass(frozen=True)
class AllocationCase:
    """A known amount of memory, to check the probe by."""

    size: int  # bytes
    backend: Any = "native"
    device: str = "cpu"

    def build(self) -> Step:
        return lambda: b"x" * self.size  # touches every page


Case = NetworkCase | RoutingCase | AllocationCase
KINDS: dict[str, type[Case]] = {kind.__name__: kind for kind in (NetworkCase, RoutingCase, AllocationCase)}


def to_plain(case: Case) -> dict[str, Any]:
    """A case as JSON can hold it."""
    return {"kind": type(case).__name__, **asdict(case)}


def from_plain(values: dict[str, Any]) -> Case:
    """The case of :func:`to_plain`."""
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return KINDS[given.pop("kind")](**given)
