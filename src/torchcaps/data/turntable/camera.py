"""Two cameras that look at the turntable: where they stand, and which ray belongs to which pixel.

In the room z is up and the turntable turns about it; its surface is z = 0. The cameras stand on the side of -y, rise
with the elevation, and both look at the middle of the object.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IMAGE_SIZE = 96
DISTANCE = 6.0  # of the cameras to the middle of the object; the object itself has a radius of 1
BASELINE = 0.5  # between the cameras
PIXEL = 1 / (DISTANCE * 39.0)  # size of a pixel at distance 1: an object of radius 1 is 78 pixels wide

Vector = NDArray[np.float64]  # [3]


@dataclass(frozen=True)
class Camera:
    """An eye and the directions of its picture; unit vectors, at right angles."""

    eye: Vector
    right: Vector
    up: Vector
    forward: Vector

    def project(self, point: Vector) -> tuple[float, float]:
        """Column and row where a point appears, in pixels from the left and upper edges of the picture."""
        offset = point - self.eye
        depth = float(offset @ self.forward) * PIXEL
        middle = IMAGE_SIZE / 2
        return middle + float(offset @ self.right) / depth, middle - float(offset @ self.up) / depth


def camera(elevation: float, side: int, target: Vector) -> Camera:
    """The left (side -1) or right (+1) camera at an elevation in degrees, looking at a point."""
    angle = math.radians(elevation)
    right = np.array([1.0, 0.0, 0.0])
    outward = np.array([0.0, -math.cos(angle), math.sin(angle)])
    eye = target + DISTANCE * outward + side * BASELINE / 2 * right
    forward = (target - eye) / np.linalg.norm(target - eye)
    level = np.cross(forward, [0.0, 0.0, 1.0])
    level /= np.linalg.norm(level)
    return Camera(eye, level, np.cross(level, forward), forward)


@dataclass(frozen=True)
class Placement:
    """How an object stands in the room: turned by azimuth, enlarged, and put at a place on the ground."""

    azimuth: float  # degrees, counterclockwise from above
    scale: float
    place: tuple[float, float]
    origin: tuple[float, float, float]  # the point of the object, in its own units, that comes to the place at z = 0

    def direction_to_object(self, direction: Vector) -> Vector:
        """A direction of the room in the object's own frame."""
        turn = math.radians(self.azimuth)
        x, y, z = direction
        return np.array([math.cos(turn) * x + math.sin(turn) * y, math.cos(turn) * y - math.sin(turn) * x, z])

    def point_to_object(self, point: Vector) -> Vector:
        """A point of the room in the object's own frame and units."""
        offset: Vector = (point - np.array([*self.place, 0.0])) / self.scale
        return np.asarray(self.direction_to_object(offset) + np.array(self.origin))

    def to_object(self, camera: Camera) -> Camera:
        """The camera as the object sees it."""
        return Camera(
            self.point_to_object(camera.eye),
            self.direction_to_object(camera.right),
            self.direction_to_object(camera.up),
            self.direction_to_object(camera.forward),
        )
