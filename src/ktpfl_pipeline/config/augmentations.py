"""What may stand under `training.augmentation`: random changes of training images, as pydantic models."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ktpfl_pipeline.config.values import Chance, Settings, as_names


class Crop(Settings):
    """torchvision's `RandomCrop`, to the size that images have."""

    padding: Annotated[int, Field(ge=0, le=8192)] = 4


class Flip(Settings):
    """torchvision's `RandomHorizontalFlip`."""

    p: Chance = 0.5


class ColorJitter(Settings):
    """torchvision's `ColorJitter`."""

    brightness: Chance = 0.4
    contrast: Chance = 0.4
    saturation: Chance = 0.4
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.1


class RandAugment(Settings):
    """torchvision's `RandAugment`."""

    num_ops: Annotated[int, Field(ge=1, le=14)] = 2
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9


class Change(Settings):
    """One random change of training images: one of these."""

    crop: Crop | None = None
    flip: Flip | None = None
    color_jitter: ColorJitter | None = None
    rand_augment: RandAugment | None = None


def _as_change(value: Any) -> Any:
    given = {value: {}} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or len(given) != 1 or not given.keys() <= Change.model_fields.keys():
        known = ", ".join(Change.model_fields)
        raise ValueError(
            f"should be one of {known}, or one of these with its arguments, as in {{crop: {{padding: 4}}}}"
        )
    return {name: {} if arguments is None else arguments for name, arguments in given.items()}


def _as_changes(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else as_names(value)


Changes = Annotated[list[Annotated[Change, BeforeValidator(_as_change)]], BeforeValidator(_as_changes)]
"""A list of them; one may stand alone, and the names of several between +."""
