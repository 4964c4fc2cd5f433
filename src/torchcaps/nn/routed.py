"""What all layers with routing have in common."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchcaps.functional.checks import check_number
from torchcaps.functional.registry import Parameters, RoutingMethod, list_routings, routing_method
from torchcaps.nn.initial import PAPER_STD, Device, truncated_normal_
from torchcaps.ops import dispatch, reference
from torchcaps.ops.window import Window
from torchcaps.types import POSE_SIDE, POSE_SIZE, Affine, Capsules, Routed

BetaInit = Literal["neutral", "paper"]
BETA_INITS = ("neutral", "paper")
PRECISE = (torch.float32, torch.float64)


class RoutedLayer(nn.Module):
    """Owns the transformation matrices ``weight [inputs, out_capsules, 4, 4]`` and the routing method's parameters.

    ``beta_init="paper"`` starts the method's parameters like the paper's other weights (standard deviation 0.01). In
    eq. 8 that all but removes the poses from the activation, so the default is the method's neutral start.

    ``learn_bandwidth=True`` learns the bandwidth of the couplings, exp(``log_bandwidth``), from that of the options on;
    the activation's is then ``activation_bandwidth``, or 1.
    """

    weight: nn.Parameter
    log_bandwidth: nn.Parameter | None

    def __init__(
        self,
        in_capsules: int,
        out_capsules: int,
        inputs: int,
        *,
        routing: str | RoutingMethod,
        iterations: int,
        transform_std: float,
        beta_init: BetaInit,
        learn_bandwidth: bool,
        routing_options: dict[str, Any],
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(type(self).__name__, in_capsules=in_capsules, out_capsules=out_capsules)
        check_number("transform_std", transform_std)
        if beta_init not in BETA_INITS:
            raise ValueError(f"beta_init={beta_init!r}: expected one of {', '.join(BETA_INITS)}")
        self.in_capsules, self.out_capsules = in_capsules, out_capsules
        self.transform_std, self.beta_init = transform_std, beta_init
        self.method = routing_method(routing)
        self.routing_options = {"iterations": iterations, **routing_options}
        self.method.check_options(self.routing_options)
        if learn_bandwidth and "bandwidth" not in self.method.options:
            able = " or ".join(name for name in list_routings() if "bandwidth" in routing_method(name).options)
            raise ValueError(f"learn_bandwidth=True: routing {self.method.name!r} has no bandwidth, expected {able}")
        bandwidth: Any = {**self.method.options, **routing_options}.get("bandwidth")
        if isinstance(bandwidth, Tensor):
            raise TypeError(
                "bandwidth is a tensor, which would neither move nor be saved with the layer: "
                "expected a number; learn_bandwidth=True learns it"
            )
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(inputs, out_capsules, POSE_SIDE, POSE_SIDE, **factory))
        self.parameter_names = tuple(self.method.parameters(out_capsules, POSE_SIZE))
        for name, parameter in self.method.parameters(out_capsules, POSE_SIZE).items():
            self.register_parameter(name, nn.Parameter(torch.empty(parameter.shape, **factory)))
        learned = nn.Parameter(torch.empty((), **factory)) if learn_bandwidth else None
        self.register_parameter("log_bandwidth", learned)
        for name, option in routing_options.items():
            if isinstance(option, nn.Module):  # a learned distance or kernel moves and is saved with the layer
                self.add_module(name, option)
        self._records: tuple[list[Routed], ...] = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start all weights anew; a learned distance or kernel is left as it is."""
        truncated_normal_(self.weight, self.transform_std)
        for name, start in self.method.parameters(self.out_capsules, POSE_SIZE).items():
            if self.beta_init == "paper":
                truncated_normal_(getattr(self, name), PAPER_STD)
            else:
                nn.init.constant_(getattr(self, name), start.value)
        if self.log_bandwidth is not None:
            bandwidth = {**self.method.options, **self.routing_options}["bandwidth"]
            nn.init.constant_(self.log_bandwidth, math.log(bandwidth))
        for part in self.children():
            if isinstance(part, nn.BatchNorm2d):
                part.reset_parameters()

    def route(
        self,
        capsules: Capsules,
        weight: Tensor,
        window: Window,
        vote_offset: Tensor | None = None,
        affine: Affine | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Route all fields of checked capsules: pose ``[B, Ho, Wo, J, 16]``, activation ``[B, Ho, Wo, J]``.

        ``affine`` is of the poses that are returned; activations and records are those of the poses without it.
        """
        parameters = {name: getattr(self, name) for name in self.parameter_names}
        if weight.dtype in PRECISE and all(t.dtype == weight.dtype for t in (*capsules, *(affine or ()))):
            return self._route(capsules, weight, parameters, window, vote_offset, affine)
        # Half precision has too few digits for the iterations. Kernels that know that read and write it themselves.
        options = (self.method, self.routing_options, vote_offset)
        if affine is None and not self._records and dispatch.takes_half_precision(capsules, weight, *options):
            return self._route(capsules, weight, parameters, window, vote_offset, None)
        dtype = torch.promote_types(capsules.pose.dtype, weight.dtype)
        precise = torch.promote_types(dtype, torch.float32)
        capsules = Capsules(*(maps.to(precise) for maps in capsules))
        parameters = {name: parameter.to(precise) for name, parameter in parameters.items()}
        affine = affine and (affine[0].to(precise), affine[1].to(precise))
        pose, activation = self._route(capsules, weight.to(precise), parameters, window, vote_offset, affine)
        return pose.to(dtype), activation.to(dtype)

    def _route(
        self,
        capsules: Capsules,
        weight: Tensor,
        parameters: Parameters,
        window: Window,
        vote_offset: Tensor | None,
        affine: Affine | None,
    ) -> tuple[Tensor, Tensor]:
        if autocast_is_on(weight.device):
            with torch.autocast(weight.device.type, enabled=False):
                return self._route(capsules, weight, parameters, window, vote_offset, affine)
        options: dict[str, Any] = {
            "window": window,
            "method": self.method,
            "options": self.routing_options,
            "vote_offset": vote_offset,
        }
        if self.log_bandwidth is not None:
            options["options"] = {
                **self.routing_options,
                "bandwidth": self.log_bandwidth.to(torch.promote_types(weight.dtype, torch.float32)).exp(),
            }
        if not self._records:
            return dispatch.route_map(capsules, weight, parameters, affine=affine, **options)
        routed = reference.route_map(capsules, weight, parameters, **options)
        for record in self._records:
            record.append(routed)
        pose = routed.pose if affine is None else reference.transformed(routed.pose, affine)
        return pose, routed.activation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_records": ()}  # a copy made while recording does not record

    def check(self, capsules: Capsules) -> Capsules:
        """The capsules, or an error that says what came and what was expected."""
        return check_capsules(type(self).__name__, capsules, self.in_capsules, self.weight)

    def describe_routing(self) -> str:
        """For ``repr``: the method and its options."""
        options = "".join(f", {name}={value}" for name, value in self.routing_options.items())
        learned = "" if self.log_bandwidth is None else ", learn_bandwidth=True"
        return f"routing={self.method.name}{options}{learned}"


@contextmanager
def record_routing(model: nn.Module) -> Iterator[dict[str, list[Routed]]]:
    """Collect what each routing layer of a model finds, by the layer's name, one entry for each call.

    The layers run the reference path, which is the one that keeps the coupling.

    >>> from torchcaps.models import create_model
    >>> model = create_model("hybrid32", num_classes=10)
    >>> with record_routing(model) as records:
    ...     _ = model(torch.randn(1, 1, 32, 32))
    >>> {name: tuple(routed[0].coupling.shape) for name, routed in records.items()}["class_capsules"]
    (1, 1, 1, 512, 10)
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, RoutedLayer)}
    records: dict[str, list[Routed]] = {name: [] for name in layers}
    try:
        for name, layer in layers.items():
            layer._records += (records[name],)
        yield records
    finally:
        for name, layer in layers.items():
            layer._records = tuple(record for record in layer._records if record is not records[name])


def check_positive(layer: str, **sizes: int) -> None:
    """Raise unless each size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{layer}: {name}={size!r}, expected a whole number of at least 1")


def check_capsules(layer: str, capsules: Capsules, n: int, weight: Tensor) -> Capsules:
    """Raise unless these are maps of ``n`` capsules on the weight's device and of its type."""
    if not isinstance(capsules, tuple) or len(capsules) != 2:
        raise TypeError(f"{layer}: got {type(capsules).__name__}, expected Capsules(pose, activation)")
    pose, activation = capsules
    if pose.dim() != 4 or pose.shape[1] != POSE_SIZE * n:
        raise ValueError(
            f"{layer}: pose has shape {list(pose.shape)}, expected [B, {POSE_SIZE * n}, H, W] for {n} capsules"
        )
    expected = (pose.shape[0], n, *pose.shape[2:])
    if activation.shape != expected:
        raise ValueError(f"{layer}: activation has shape {list(activation.shape)}, expected {list(expected)}")
    for name, value in (("pose", pose), ("activation", activation)):
        check_placement(layer, name, value, weight)
    return Capsules(pose, activation)


def autocast_is_on(device: torch.device) -> bool:
    """Whether operations on that device choose their own types."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def check_placement(layer: str, name: str, value: Tensor, weight: Tensor) -> None:
    """Raise unless a tensor is where the layer's weights are, and of their type (under autocast: any floating one)."""
    if value.device != weight.device:
        raise ValueError(
            f"{layer}: {name} is on {value.device}, the weights are on {weight.device}: move one with .to(device)"
        )
    if not value.is_floating_point() or (value.dtype != weight.dtype and not autocast_is_on(weight.device)):
        raise TypeError(
            f"{layer}: {name} is {value.dtype}, the weights are {weight.dtype}: convert one with .to(dtype)"
        )
