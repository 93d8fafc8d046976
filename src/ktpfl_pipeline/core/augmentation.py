"""Random changes of training images, by torchvision's transforms (v2), which are imported only when they are used."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Augmentation

TRANSFORMS: dict[str, Callable[[Any, Sequence[int]], Callable[..., Any]]] = {
    "crop": lambda v2, shape: lambda padding: v2.RandomCrop(tuple(shape[-2:]), padding),
    "flip": lambda v2, shape: v2.RandomHorizontalFlip,
    "color_jitter": lambda v2, shape: v2.ColorJitter,
    "rand_augment": lambda v2, shape: v2.RandAugment,
}
"""Functions that return the class of a transform, by name, from `torchvision.transforms.v2` and an image's shape."""
OF_COLOR = ("color_jitter", "rand_augment")


def make(wanted: Augmentation, shape: Sequence[int]) -> Callable[[Tensor], Tensor] | None:
    """Return a function that changes b uint8 images, (b, C, H, W), each by its own draws; None if no change is wanted.

    `shape` is that of one image, (C, H, W). Images are changed one by one, because torchvision would draw once for all
    images of a batch. Draws come from torch's global generator on the CPU.
    """
    if not wanted:
        return None
    from torchvision.transforms import v2

    steps = [TRANSFORMS[name](v2, shape)(**arguments) for each in wanted for name, arguments in each.items()]
    change = v2.Compose(steps)
    return lambda images: torch.stack([change(image) for image in images])


def check(wanted: Augmentation, inputs: Tensor) -> None:
    """Check that the wanted changes can be applied to inputs, (M, ...), and import torchvision's transforms.

    Raises InputError if the inputs are not images, or have a number of channels that a change of colors does not allow.
    """
    names = [name for each in wanted for name in each]
    if not names:
        return
    if not (kind := kinds.of(inputs)).pixels:
        raise InputError(
            f"training.augmentation has {', '.join(names)}, and the clients' samples are {kind.name}, not images: set"
            " it to []."
        )
    check_channels(wanted, inputs.shape[1])
    import torchvision.transforms.v2  # noqa: F401 - imported before workers are forked, as it takes seconds


def check_channels(wanted: Augmentation, channels: int) -> None:
    """Check that the wanted changes can be applied to images with `channels` channels; else raise InputError."""
    colored = [name for each in wanted for name in each if name in OF_COLOR]
    if colored and channels not in (1, 3):
        raise InputError(
            f"training.augmentation has {colored[0]}, which changes colors, and images have {channels} channels; it "
            "needs 1 or 3: leave it out."
        )
