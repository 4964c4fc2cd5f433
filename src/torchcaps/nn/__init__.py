"""Layers: they own parameters, and leave the mathematics to :mod:`torchcaps.functional`."""

from torchcaps.nn.classes import ClassCapsules
from torchcaps.nn.conv import CapsuleConv2d
from torchcaps.nn.decoder import Decoder
from torchcaps.nn.primary import PrimaryCapsules
from torchcaps.nn.residual import PoseResidual
from torchcaps.nn.routed import RoutedLayer, record_routing

__all__ = [
    "CapsuleConv2d",
    "ClassCapsules",
    "Decoder",
    "PoseResidual",
    "PrimaryCapsules",
    "RoutedLayer",
    "record_routing",
]
