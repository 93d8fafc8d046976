"""Clients whose inputs look different: the same classes through another camera or sensor.

Client n has level n mod `levels`, so clients of one level see alike, and a method that groups clients has groups
to find. At level 0 the inputs are as they are; each level more changes them further.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.rng import stream

BLUR = 0.07
"""σ at the highest level, in units of the shorter side."""
IMAGE_NOISE, FEATURE_NOISE = 64.0, 0.5
"""Standard deviation at the highest level: of uint8 images, and of features in units of their own."""


class FeatureSkew(NamedTuple):
    """How inputs differ between clients: `kind` is noise or one of `KINDS`; the noise comes from the run's `seed`."""

    kind: str
    levels: int
    seed: int

    def check(self, inputs: Tensor) -> None:
        """Raise an `InputError` where inputs (M, ...) cannot be skewed so."""
        shape = tuple(inputs.shape[1:])
        if (kind := kinds.of(inputs)) is kinds.TOKENS:
            raise InputError(
                f"partition.feature_skew is {self.kind}, which changes the numbers of inputs, and the private data are"
                " tokens, whose numbers are ids: choose none."
            )
        if not kind.pixels and self.kind != "noise":
            raise InputError(
                f"partition.feature_skew is {self.kind}, which images can have, and the private data are {kind.name} of"
                f" shape {shape}: choose noise or none."
            )
        if self.kind == "color" and shape[0] != 3:
            raise InputError(
                f"partition.feature_skew is color, which RGB images can have, and the private images have {shape[0]}"
                f" channel{'s' * (shape[0] > 1)}: choose rotation, blur, noise or none."
            )

    def applied(self, inputs: Tensor, client: int, split: str) -> Tensor:
        """Return images or standardized features of one split, (n, ...), as a client has them; of the same type."""
        level = client % self.levels
        if level == 0 or len(inputs) == 0:
            return inputs
        if self.kind != "noise":
            return KINDS[self.kind](inputs, level, self.levels)
        drawn = torch.randn(inputs.shape, generator=stream(self.seed, "feature_noise", client, split))
        drawn *= level / (self.levels - 1)
        if kinds.of(inputs).pixels:
            return (inputs + IMAGE_NOISE * drawn).round().clamp(0, 255).to(torch.uint8)
        return inputs + FEATURE_NOISE * drawn


def _rotation(images: Tensor, level: int, levels: int) -> Tensor:
    """Rotate by level · 360° / levels (Ghosh et al. 2020: rotated MNIST); quarters of squares without interpolation."""
    quarters, rest = divmod(4 * level, levels)
    if rest == 0 and (images.shape[-2] == images.shape[-1] or quarters == 2):
        return images.rot90(quarters, (-2, -1)).contiguous()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as transforms

    rotated: Tensor = transforms.rotate(images, 360 * level / levels, InterpolationMode.BILINEAR)
    return rotated


def _blur(images: Tensor, level: int, levels: int) -> Tensor:
    """Blur with a Gaussian, of the corruptions of Hendrycks and Dietterich (2019)."""
    shorter = min(images.shape[-2:])
    sigma = BLUR * shorter * level / (levels - 1)
    size = min(2 * int(3 * sigma) + 3, 2 * shorter - 1)  # torch mirrors less than a whole side
    from torchvision.transforms.v2 import functional as transforms

    blurred: Tensor = transforms.gaussian_blur(images, [size, size], [sigma, sigma])
    return blurred


def _color(images: Tensor, level: int, levels: int) -> Tensor:
    """Turn every hue by level · 360° / levels."""
    from torchvision.transforms.v2 import functional as transforms

    turned: Tensor = transforms.adjust_hue(images, (level / levels + 0.5) % 1 - 0.5)
    return turned


KINDS: dict[str, Callable[[Tensor, int, int], Tensor]] = {"rotation": _rotation, "blur": _blur, "color": _color}
"""``kind(images, level, levels)``: what changes images and draws nothing."""
