"""Feature skew: inputs that differ between clients with the same classes, as if from different cameras or sensors.

Client n has level n mod `levels`. Inputs at level 0 are unchanged, and higher levels change them more. Clients of the
same level form a group that methods with client groups can find.

Changes are computed in float64 and rounded to multiples of `STEP`, so that they are equal on all processors.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.rng import stream

BLUR = 0.07
"""Standard deviation of the blur at the highest level, as a fraction of the image's shorter side."""
IMAGE_NOISE, FEATURE_NOISE = 64.0, 0.5
"""Standard deviation of the noise at the highest level: for uint8 values of images, and for standardized features."""
STEP = 2.0**-20
"""Far more than processors differ in float64, and far less than inputs need."""


class FeatureSkew(NamedTuple):
    """The settings of feature skew.

    Attributes:
        kind: ``noise`` or a name of `KINDS`.
        levels: the number of levels, at least 2.
        seed: the seed of the run, from which the noise is drawn.
    """

    kind: str
    levels: int
    seed: int

    def check(self, inputs: Tensor) -> None:
        """Raise InputError if this kind of skew does not exist for the inputs, (M, ...)."""
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
        """Return the changed inputs of one split of a client: uint8 images or standardized features, (n, ...)."""
        level = client % self.levels
        if level == 0 or len(inputs) == 0:
            return inputs
        if self.kind != "noise":
            return KINDS[self.kind](inputs, level, self.levels)
        draws = stream(self.seed, "feature_noise", client, split)
        drawn = torch.randn(inputs.shape, dtype=torch.float64, generator=draws) * (level / (self.levels - 1))
        if kinds.of(inputs).pixels:
            return _pixels(inputs + IMAGE_NOISE * drawn)
        return (inputs + _in_steps(FEATURE_NOISE * drawn)).float()


def _in_steps(values: Tensor) -> Tensor:
    return (values / STEP).round() * STEP


def _pixels(values: Tensor) -> Tensor:
    """Return values of pixels, float64, as uint8, halves rounded to even."""
    return _in_steps(values).round().clamp(0, 255).to(torch.uint8)


def _rotation(images: Tensor, level: int, levels: int) -> Tensor:
    """Rotate images, (n, C, H, W), by level · 360° / levels, as in rotated MNIST (Ghosh et al. 2020).

    Half turns, and quarter turns of square images, need no interpolation.
    """
    quarters, rest = divmod(4 * level, levels)
    if rest == 0 and (images.shape[-2] == images.shape[-1] or quarters == 2):
        return images.rot90(quarters, (-2, -1)).contiguous()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as transforms

    return _pixels(transforms.rotate(images.double(), 360 * level / levels, InterpolationMode.BILINEAR))


def _blur(images: Tensor, level: int, levels: int) -> Tensor:
    """Blur images with a Gaussian kernel, one of the corruptions of Hendrycks and Dietterich (2019)."""
    sides = images.shape[-2:]
    sigma = BLUR * min(sides) * level / (levels - 1)
    reach = min(int(3 * sigma) + 1, min(sides) - 1)  # an image is reflected once at most
    down, across = (_gaussian(side, sigma, reach) for side in sides)
    return _pixels(down @ images.double() @ across.T)


def _gaussian(side: int, sigma: float, reach: int) -> Tensor:
    """Return the weights of the pixels of a side in each blurred pixel, (side, side), reflected at both ends."""
    offsets = torch.arange(-reach, reach + 1)
    weights = (-0.5 * (offsets.double() / sigma) ** 2).exp()
    found = torch.arange(side).unsqueeze(1) + offsets
    found = side - 1 - (side - 1 - found.abs()).abs()
    blank = torch.zeros(side, side, dtype=torch.float64)
    return blank.scatter_add(1, found, (weights / weights.sum()).expand(side, -1))


def _color(images: Tensor, level: int, levels: int) -> Tensor:
    """Shift the hue of all pixels by level · 360° / levels."""
    from torchvision.transforms.v2 import functional as transforms

    turned: Tensor = transforms.adjust_hue(images, (level / levels + 0.5) % 1 - 0.5)
    return turned


KINDS: dict[str, Callable[[Tensor, int, int], Tensor]] = {"rotation": _rotation, "blur": _blur, "color": _color}
"""Functions ``kind(images, level, levels)`` that return changed images. They are not random."""
