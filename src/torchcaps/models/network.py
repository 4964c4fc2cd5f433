"""What all networks have in common."""

from typing import ClassVar

from torch import Tensor, nn

from torchcaps.nn.initial import ConvInit, start_anew_
from torchcaps.nn.routed import RoutedLayer, check_placement, check_positive
from torchcaps.types import Classified


class Network(nn.Module):
    """A classifier of square images of one size, fixed at construction."""

    has_capsules: ClassVar[bool] = False

    def __init__(self, num_classes: int, in_channels: int, image_size: int, conv_init: ConvInit) -> None:
        super().__init__()
        check_positive(type(self).__name__, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
        self.num_classes, self.in_channels, self.image_size = num_classes, in_channels, image_size
        self.conv_init = conv_init

    @property
    def head(self) -> tuple[str, ...]:
        """How the names of the weights begin that belong to one set of classes; all others are the body."""
        return ()

    def is_body(self, name: str) -> bool:
        """Whether a weight or a layer of that name is of the body, which fine-tuning keeps."""
        return not f"{name}.".startswith(self.head)

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for part in self.children():
            start_anew_(part, self.conv_init)

    def check_image(self, image: Tensor) -> None:
        """Raise unless these are ``[B, in_channels, image_size, image_size]`` of the weights' type, on their device."""
        name = type(self).__name__
        expected = (self.in_channels, self.image_size, self.image_size)
        if image.dim() != 4 or image.shape[1:] != expected:
            raise ValueError(
                f"{name}: got images of shape {list(image.shape)}, expected [B, {', '.join(map(str, expected))}]: "
                "resize the images, or create the model with in_channels and image_size to match"
            )
        check_placement(name, "the image", image, next(self.parameters()))

    def reconstruct(self, pose: Tensor | Classified, label: Tensor | None = None) -> Tensor:
        """Images from class poses, for networks that have capsules and a decoder."""
        raise RuntimeError(f"{type(self).__name__} has no decoder: create a hybrid network with decoder=True")

    def drop_decoder(self) -> None:
        """Go on without the decoder, where there is one."""
        if "decoder" in self._modules:
            setattr(self, "decoder", None)  # noqa: B010 - which only some networks declare

    def parameter_count(self) -> int:
        """Number of learned values, without the decoder, which is only a regulariser."""
        return sum(p.numel() for name, p in self.named_parameters() if not name.startswith("decoder."))

    def routing_parameter_count(self) -> int:
        """Number of learned values in the layers with routing: matrices and betas."""
        layers = (layer for layer in self.modules() if isinstance(layer, RoutedLayer))
        return sum(p.numel() for layer in layers for p in layer.parameters())
