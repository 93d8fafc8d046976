"""Random changes of training images: their settings, and torchvision's transforms (v2), imported when they are used."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import Chance, Reads, parse, plain

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Crop:
    """torchvision's `RandomCrop`, to the size that images have.

    Attributes:
        padding: pixels added on each side before cropping.
    """

    padding: Annotated[int, Ge(0), Le(8192)] = 4


@dataclass(frozen=True)
class Flip:
    """torchvision's `RandomHorizontalFlip`.

    Attributes:
        p: the probability of a flip.
    """

    p: Chance = 0.5


@dataclass(frozen=True)
class ColorJitter:
    """torchvision's `ColorJitter`.

    Attributes:
        brightness: the largest relative change of brightness.
        contrast: the largest relative change of contrast.
        saturation: the largest relative change of saturation.
        hue: the largest shift of hue, in turns.
    """

    brightness: Chance = 0.4
    contrast: Chance = 0.4
    saturation: Chance = 0.4
    hue: Annotated[float, Ge(0), Le(0.5)] = 0.1


@dataclass(frozen=True)
class RandAugment:
    """torchvision's `RandAugment`.

    Attributes:
        num_ops: changes per image.
        magnitude: strength of the changes.
    """

    num_ops: Annotated[int, Ge(1), Le(14)] = 2
    magnitude: Annotated[int, Ge(0), Le(30)] = 9


CHANGES: dict[str, type] = {"crop": Crop, "flip": Flip, "color_jitter": ColorJitter, "rand_augment": RandAugment}


def _change(value: Any) -> dict[str, Any]:
    """Return one change with all its arguments: ``{"flip": {"p": 0.5}}``."""
    given = {value: {}} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or len(given) != 1 or not given.keys() <= CHANGES.keys():
        raise ValueError(f"one of {', '.join(CHANGES)}, or one of them with arguments, as in {{crop: {{padding: 4}}}}")
    return {
        name: plain(parse(CHANGES[name], {} if arguments is None else arguments, name))
        for name, arguments in given.items()
    }


def _changes(value: Any) -> Any:
    """Return a list of changes: a single one may be given without brackets, and names may be joined with +."""
    return [value] if isinstance(value, Mapping) else value.split("+") if isinstance(value, str) else value


Augmentation = Annotated[tuple[Annotated[dict[str, Any], Reads(_change)], ...], Reads(_changes)]
"""Changes of an image in their order: names of `CHANGES`, each with its arguments."""

TRANSFORMS: dict[str, Callable[[Any, Sequence[int]], Callable[..., Any]]] = {
    "crop": lambda v2, shape: lambda padding: v2.RandomCrop(tuple(shape[-2:]), padding),
    "flip": lambda v2, shape: v2.RandomHorizontalFlip,
    "color_jitter": lambda v2, shape: v2.ColorJitter,
    "rand_augment": lambda v2, shape: v2.RandAugment,
}
"""Functions that return the class of a transform, by name, from `torchvision.transforms.v2` and an image's shape."""
OF_COLOR = ("color_jitter", "rand_augment")


def make(wanted: Augmentation, shape: Sequence[int]) -> "Callable[[Tensor], Tensor] | None":
    """Return a function that changes b uint8 images, (b, C, H, W), each by its own draws; None if no change is wanted.

    `shape` is that of one image, (C, H, W). Images are changed one by one, because torchvision would draw once for all
    images of a batch. Draws come from torch's global generator on the CPU.
    """
    if not wanted:
        return None
    import torch
    from torchvision.transforms import v2

    steps = [TRANSFORMS[name](v2, shape)(**arguments) for each in wanted for name, arguments in each.items()]
    change = v2.Compose(steps)
    return lambda images: torch.stack([change(image) for image in images])


def check(wanted: Augmentation, inputs: "Tensor") -> None:
    """Check that the wanted changes can be applied to inputs, (M, ...), and import torchvision's transforms.

    Raises InputError if the inputs are not images, or have a number of channels that a change of colors does not allow.
    """
    names = [name for each in wanted for name in each]
    if not names:
        return
    from ktpfl_pipeline.core import kinds

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
