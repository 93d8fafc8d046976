"""Conversion of images from any source to the channels and the size of a federation."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.resources import gib, room

_CHUNK_VALUES = 2**23  # float64 values that `adapt` holds at a time: 64 MiB
_LUMA = torch.tensor([299.0, 587.0, 114.0], dtype=torch.float64)  # of red, green and blue, in thousandths
_LARGEST = 2**17  # sum of the integer weights of a pixel; sums of 255 · 1000 · _LARGEST² are exact in float64


def adapt(images: Tensor, shape: Shape, what: str = "images") -> Tensor:
    """Return images converted to the channels and the size of a federation; `images` itself if no change is needed.

    Grayscale images are repeated for further channels. RGB images become grayscale by the luma of ITU-R BT.601
    (0.299 R + 0.587 G + 0.114 B). Sizes are changed by bilinear interpolation, with antialiasing if a side shrinks.
    All sums are of integers, and the exact value is rounded once, at the end, halves to even. So the pixels do not
    depend on the processor.

    Args:
        images: (M, 1 to 4, height, width) uint8.
        shape: the channels, height and width of the result.
        what: the name of the images in messages.

    Raises:
        InputError: if the images cannot be converted to these channels, or the result would be too large.
    """
    number, given, *sides = images.shape
    channels, *size = shape
    if (given, *sides) == tuple(shape):
        return images
    if given not in (channels, 1) and (given, channels) != (3, 1):
        raise InputError(
            f"{what} have {given} channels, which cannot be converted to {channels}, only gray to any number and RGB "
            f"to gray: set image.channels to {given}{' or 1' * (given == 3)}, or convert the images."
        )
    if number * math.prod(shape) > room():
        raise InputError(
            f"{number:,} {what}, resized to {size[0]} x {size[1]} pixels, need more than {gib(room())}: choose a "
            "smaller size."
        )
    adapted = torch.empty(number, *shape, dtype=torch.uint8)
    rows = max(1, _CHUNK_VALUES // (given * math.prod(map(max, sides, size))))
    for start in range(0, number, rows):
        chunk, scale = images[start : start + rows].double(), torch.ones((), dtype=torch.float64)
        if channels < given:
            chunk, scale = (chunk * _LUMA.view(3, 1, 1)).sum(dim=1, keepdim=True), _LUMA.sum()
        if sides != size:
            down, across = map(_weights, sides, size)
            chunk = down @ chunk @ across.T
            scale = scale * down.sum(dim=1, keepdim=True) * across.sum(dim=1)
        adapted[start : start + rows] = (chunk / scale).round().to(torch.uint8)  # gray is repeated here
    return adapted


def _weights(old: int, new: int) -> Tensor:
    """Return the weights of `old` pixels in each of `new` pixels, (new, old): integers in float64, not normalized.

    A weight falls linearly with the distance of the pixels' centers, to zero at the width of the larger pixel.
    """
    width = 2 * max(old, new)  # distances are in 1 / (2 · old · new) of the side
    centers = (2 * torch.arange(new) + 1).mul(old).unsqueeze(1) - (2 * torch.arange(old) + 1).mul(new)
    weights = (width - centers.abs()).clamp(min=0).double()
    return (weights * min(1.0, _LARGEST / float(weights.sum(dim=1).max()))).floor()


def converted(native: Sequence[int], shape: Sequence[int], kind: str = "") -> str:
    """Return a description of inputs and their conversion, such as ``8 × 8 gray, resized to 28 × 28``.

    `native` is the shape of an input in its source; empty if images have several sizes or an unknown size. `shape` is
    the shape of the models' inputs. `kind` is the name of the kind in `core.kinds.KINDS`; empty if unknown.
    """
    told = kinds.KINDS.get(kind, kinds.IMAGES).in_words
    if tuple(native) == tuple(shape):
        return told(shape)
    if not native:
        return f"converted to {told(shape)}"
    if native[0] != shape[0]:
        return f"{told(native)}, converted to {told(shape)}"
    return f"{told(native)}, resized to {' × '.join(map(str, shape[1:]))}"
