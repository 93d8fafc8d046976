"""Checks of the kind and size of a model's inputs, and errors for unsupported inputs."""

from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.core.errors import InputError

KINDS = {3: "images", 2: "series", 1: "vectors"}
"""The kind of inputs by the number of dimensions of one input."""
TRIED: set[tuple[Any, ...]] = set()
"""Models with shapes and classes that passed their checks in this process, so that each is checked once."""
INSTEAD = {
    "images": "choose lenet, cnn, mlp or torchvision:resnet18",
    "series": "choose cnn1d, gru or mlp",
    "vectors": "choose mlp",
    "tokens": "choose fasttext, text_cnn, text_gru, text_lstm or text_transformer",
}


def image(model: str, shape: Shape, least: int) -> tuple[int, int, int]:
    """Return (channels, height, width) for a `model` whose inputs are images with sides of at least `least` pixels.

    Raises InputError if an input is not an image, or is too small.
    """
    channels, height, width = _of_kind("images", model, shape)
    if min(height, width) < least:
        raise too_small(model, shape, least)
    return channels, height, width


def too_small(model: str, shape: Shape, least: int) -> InputError:
    """Return the error for images of a `shape` with a side below `least` pixels."""
    if flat := _series_in_disguise(shape):
        return InputError(f"{model} takes images; {flat}.")
    height, width = shape[1:]
    return InputError(
        f"{model} takes images of at least {least} x {least} pixels; these are {height} x {width}: set image.size to "
        f"{least} or more, or choose a smaller model, such as cnn or mlp."
    )


def series(model: str, shape: Shape, least: int) -> tuple[int, int]:
    """Return (channels, length) for a `model` whose inputs are series of at least `least` values.

    Raises InputError if an input is not a series, or is too short.
    """
    channels, length = _of_kind("series", model, shape)
    if length < least:
        raise InputError(f"{model} takes series of at least {least} values; these have {length}: choose mlp.")
    return channels, length


def _series_in_disguise(shape: Shape) -> str:
    """Return advice for series with an additional axis of length 1, such as PFLlib's (9, 1, 128); empty for others."""
    if len(shape) != 3 or (shape[1] == 1) == (shape[2] == 1):
        return ""
    return (
        f"these are features of {sides(shape)}, series with one axis too many: set private.shape to [{shape[0]}, "
        f"{max(shape[1:])}], and choose cnn1d, gru or mlp"
    )


def tokens(model: str, shape: Shape) -> TokenShape:
    """Return the shape of a text for a `model` whose inputs are tokens. Raises InputError if they are not tokens."""
    _of_kind("tokens", model, shape)
    assert isinstance(shape, TokenShape)
    return shape


def numbers(model: str, shape: Shape) -> Shape:
    """Return the shape of an input for a `model` whose inputs are numbers. Raises InputError if they are tokens."""
    if isinstance(shape, TokenShape):
        _of_kind("numbers", model, shape)
    return shape


def sides(shape: Shape) -> str:
    """Return a shape as text for messages, such as ``3 x 32 x 32``."""
    return " x ".join(map(str, shape))


def example(shape: Shape, number: int) -> Tensor:
    """Return inputs for checks of a model, (number, *shape): zeros in float32, or in int64 for texts."""
    return torch.zeros(number, *shape, dtype=torch.int64 if isinstance(shape, TokenShape) else torch.float32)


def _of_kind(kind: str, model: str, shape: Shape) -> Shape:
    found = KINDS.get(len(shape), f"inputs of {len(shape)} dimensions")
    if isinstance(shape, TokenShape):
        found = "tokens"
    if found != kind:
        if flat := _series_in_disguise(shape):
            raise InputError(f"{model} takes {kind}; {flat}.")
        instead = INSTEAD.get(found, "choose mlp")
        raise InputError(f"{model} takes {kind}; these are {found} of {sides(shape)}: {instead}.")
    return shape
