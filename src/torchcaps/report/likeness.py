"""How much of their input the reconstructions show: their squared error beside that of mean images."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.report.samples import Subject, of_class, shown_classes
from torchcaps.runs.text import percent

CLASSES, IMAGES = 100, 1000  # at most; so many images in all, spread over the classes
BATCH = 200
# A mean image shows nothing of the image in front of it, and has 1; trained networks are far from this on both sides.
NOTHING_FROM = 0.75


class Likeness(NamedTuple):
    """The squared error of the reconstructions as a share of that of the mean of the other images.

    Without the brightness: each image less its mean, and each reconstruction less its own. Otherwise a grey blur on a
    background of the right grey would count as a picture.
    """

    of_all: float  # the mean of all other images
    of_class: float  # the mean of the other images of the same class

    @property
    def words(self) -> str:
        """What that says about the reconstructions."""
        if self.of_all >= NOTHING_FROM:
            says = "The reconstructions show next to nothing of their input beyond its brightness"
        elif self.of_class >= NOTHING_FROM:
            says = "The reconstructions show the class, not the individual image"
        else:
            says = "The reconstructions show the individual image, not just its class"
        return (
            f"{says}: without brightness, their squared error is {percent(self.of_class, 0)} of that of the mean image "
            f"of the class, and {percent(self.of_all, 0)} of that of the mean of all test images."
        )


def likeness(subject: Subject) -> Likeness | None:
    """Measured on test images of all classes that have two; None where there are none."""
    evaluation = subject.evaluation
    labels = shown_classes(evaluation, CLASSES)
    drawn = [of_class(evaluation, label, max(2, IMAGES // len(labels))) for label in labels]
    several = [of_one for of_one in drawn if len(of_one) > 1]
    if not several:
        return None
    index = torch.cat(several)  # [n]
    found = [_images(subject, index[start : start + BATCH]) for start in range(0, len(index), BATCH)]
    images, again = (torch.cat(parts) for parts in zip(*found, strict=True))  # [n, C, 32, 32] each
    return compare(images, again, evaluation.label[index])


def _images(subject: Subject, index: Tensor) -> tuple[Tensor, Tensor]:
    """Some test images, and what the decoder makes of them."""
    output, target = subject.poses(index)
    return target, subject.classifier.network.reconstruct(output)


def compare(images: Tensor, again: Tensor, label: Tensor) -> Likeness | None:
    """Of images and their reconstructions ``[n, C, H, W]``, of each class at least two; None where all are the same."""
    images, again = without_brightness(images), without_brightness(again)
    error = squared_error(images, again).sum()
    of_mean = squared_error_of_mean(images).sum()
    of_class_mean = sum(squared_error_of_mean(images[label == one]).sum() for one in set(label.tolist()))
    if not of_class_mean > 0 or not error.isfinite():
        return None
    return Likeness(float(error / of_mean), float(error / of_class_mean))


def without_brightness(images: Tensor) -> Tensor:
    """Each channel of each image ``[n, C, H, W]`` less its mean."""
    return images - images.mean((2, 3), keepdim=True)


def squared_error(images: Tensor, others: Tensor) -> Tensor:
    """Sums over pixels and channels ``[n]``."""
    return (images.double() - others).square().sum((1, 2, 3))


def squared_error_of_mean(images: Tensor) -> Tensor:
    """Of each image from the mean of the others ``[n]``; images ``[n, C, H, W]``, at least two.

    Without the image itself, which a mean of few images would show.
    """
    count = len(images)
    return squared_error(images, images.double().mean(0)) * (count / (count - 1)) ** 2
