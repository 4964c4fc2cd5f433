"""The test images that the page shows, and what the network makes of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.classifier.classifier import Classifier
from torchcaps.classifier.evaluation import Evaluation
from torchcaps.data.transforms import centre_crop
from torchcaps.data.types import Split
from torchcaps.nn.routed import RoutedLayer
from torchcaps.types import Classified


class Subject(NamedTuple):
    """What a page is about."""

    classifier: Classifier
    test: Split
    evaluation: Evaluation

    def prepared(self, index: Tensor) -> Split:
        """Some test images at the size from which crops are taken."""
        return self.classifier.pipeline.prepare(self.test.take(index))

    def crops(self, index: Tensor) -> Tensor:
        """What the network sees of some test images: ``[n, C, S, S]`` uint8."""
        return centre_crop(self.prepared(index).images, self.classifier.pipeline.crop)

    def poses(self, index: Tensor) -> tuple[Classified, Tensor]:
        """Class capsules of some test images, and the images that the decoder should give: ``[n, C, 32, 32]``."""
        split = self.prepared(index)
        batch = self.classifier.pipeline.evaluate(split.images, split.labels)
        output = self.classifier(batch.image)
        assert isinstance(output, Classified)
        return output, batch.target

    @property
    def has_capsules(self) -> bool:
        return any(isinstance(layer, RoutedLayer) for layer in self.classifier.network.modules())

    @property
    def has_decoder(self) -> bool:
        return getattr(self.classifier.network, "decoder", None) is not None

    @property
    def note(self) -> str:
        """A note on images that cannot be shown whole."""
        channels = self.test.images.shape[1]
        return "" if channels in (1, 3) else f" Only the first of an image's {channels} channels is shown."


def of_class(evaluation: Evaluation, label: int, most: int) -> Tensor:
    """Indices of some images of a class, drawn at random but always the same: ``[n]``."""
    found = (evaluation.label == label).nonzero().squeeze(1)
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(label))
    return found[order[:most]]


def shown_classes(evaluation: Evaluation, most: int) -> list[int]:
    """The classes that have test images; of too many, some spread evenly."""
    present = sorted(set(evaluation.label.tolist()))
    every = max(1.0, len(present) / most)
    return [present[int(k * every)] for k in range(min(most, len(present)))]


def surest(evaluation: Evaluation) -> int:
    """The right answer of the highest activation, of a class with several images; the next best where there is none."""
    activation = evaluation.activation.nan_to_num().amax(1)  # [N]
    images = evaluation.label.bincount(minlength=len(evaluation.classes))  # [classes]
    is_one_of_several = images[evaluation.predicted] > 1  # [N]
    is_right = evaluation.predicted == evaluation.label  # [N]
    by_activation = activation.argsort(descending=True, stable=True)
    merit = 2 * is_one_of_several.long() + is_right.long()  # [N]
    return int(by_activation[merit[by_activation].argmax()])
