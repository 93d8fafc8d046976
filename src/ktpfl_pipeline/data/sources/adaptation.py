"""Images of any source with the channels and the size of a federation."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources.limits import gib, room

_CHUNK_VALUES = 2**24  # float32 values that `adapt` holds at a time: 64 MiB


def adapt(images: Tensor, channels: int, size: int) -> Tensor:
    """Return the images with the channels and size of the federation; `images` itself when nothing is to be done.

    Grey becomes RGB by repetition, RGB becomes grey by the luma of ITU-R BT.601 (0.299 R + 0.587 G + 0.114 B). Sizes
    change by bilinear interpolation, with antialiasing when shrinking; values are rounded once, at the end.

    Args:
        images: (M, 1 or 3, height, width), uint8.
        channels: 1 (grey) or 3 (RGB).
        size: height and width of the result, in pixels.

    Returns:
        (M, channels, size, size), uint8.

    Raises:
        InputError: channels other than 1 or 3, a size below 1, or a result of more than 16 GiB.
    """
    if channels not in (1, 3):
        raise InputError(f"{channels} image channels are not supported: choose 1 (grey) or 3 (RGB).")
    if size < 1:
        raise InputError(f"the image size {size} is not possible: choose 1 pixel or more, such as 28 or 32.")
    number, given, height, width = images.shape
    if (given, height, width) == (channels, size, size):
        return images
    if number * channels * size**2 > room():
        raise InputError(
            f"{number:,} images of {size} x {size} pixels need more than {gib(room())}: choose a smaller size."
        )
    adapted = torch.empty(number, channels, size, size, dtype=torch.uint8)
    rows = max(1, _CHUNK_VALUES // (given * max(height, size) * max(width, size)))
    for start in range(0, number, rows):
        chunk = images[start : start + rows].float()
        if channels < given:
            chunk = (chunk * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=1, keepdim=True)
        if (height, width) != (size, size):
            shrinks = size < max(height, width)
            chunk = interpolate(chunk, (size, size), mode="bilinear", align_corners=False, antialias=shrinks)
        adapted[start : start + rows] = chunk.round().clamp(0, 255).to(torch.uint8)  # grey is repeated here
    return adapted
