"""The paper's mathematics as pure functions, one file per algorithm."""

from torchcaps.functional.activation import capsule_activation
from torchcaps.functional.agreement import agreement, squash
from torchcaps.functional.distances import Distance, Mahalanobis
from torchcaps.functional.em import em, em_log_likelihood
from torchcaps.functional.frem import frem
from torchcaps.functional.frms import frms
from torchcaps.functional.kernels import Epanechnikov, Gaussian, Kernel
from torchcaps.functional.losses import (
    activation_cross_entropy,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
)
from torchcaps.functional.objective import objective, trace_routing
from torchcaps.functional.registry import (
    Parameters,
    RoutingMethod,
    Start,
    list_routings,
    register_routing,
    routing_method,
)
from torchcaps.functional.variant import frms_variant

__all__ = [
    "Distance",
    "Epanechnikov",
    "Gaussian",
    "Kernel",
    "Mahalanobis",
    "Parameters",
    "RoutingMethod",
    "Start",
    "activation_cross_entropy",
    "agreement",
    "capsule_activation",
    "em",
    "em_log_likelihood",
    "frem",
    "frms",
    "frms_variant",
    "list_routings",
    "margin_loss",
    "objective",
    "reconstruction_loss",
    "register_routing",
    "routing_method",
    "spread_loss",
    "spread_margin",
    "squash",
    "trace_routing",
]
