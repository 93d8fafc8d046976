"""Features in float32: finite, and with enough of its numbers between the values of a column."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError

STEPS = 1000
"""Steps of float32 that a column must span if float32 changes its values: with fewer, it hides their differences.
A column that spans fewer steps of float64 is constant up to rounding, and loses nothing."""


class Extent(NamedTuple):
    """The lowest and highest value of each column, (C,) float64, and whether float32 changes any of it, (C,) bool.

    A column is a feature of a vector, or a channel of a series or an image: what is standardized together.
    """

    low: "np.ndarray[Any, Any]"
    high: "np.ndarray[Any, Any]"
    changed: "np.ndarray[Any, Any]"

    @property
    def narrow(self) -> "np.ndarray[Any, Any]":
        """Which columns vary by less than `STEPS` of float32, (C,) bool."""
        span, largest = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        steps, noise = STEPS * np.spacing(largest.astype(np.float32)), STEPS * np.spacing(largest)
        narrow: np.ndarray[Any, Any] = (noise < span) & (span < steps)
        return narrow


def as_float32(values: "np.ndarray[Any, Any]", where: str) -> Tensor:
    """Return features, (N, ...), in float32, having checked that all are finite there."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and an error
        features = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    check_finite(features, where)
    return features


def check_finite(features: Tensor, where: str) -> None:
    """Check that all values of features, (N, ...) float32, are finite; the error names the first row."""
    finite = features.isfinite().flatten(1)
    if not finite.all():
        row = int(finite.all(dim=1).logical_not().nonzero()[0, 0])
        value = features[row].flatten()[~finite[row]][0].item()
        raise InputError(f"{where} has {value} in row {row} (rows count from 0): replace it, or leave the row out.")


def extent(values: "np.ndarray[Any, Any]") -> Extent:
    """Return the extent of finite features, (N, C, ...), in the type in which they were read."""
    along = (0, *range(2, values.ndim))
    low, high = (part.astype(np.float64) for part in (values.min(axis=along), values.max(axis=along)))
    changed = np.zeros(len(low), dtype=bool)
    if values.dtype.itemsize > 4:
        for column in Extent(low, high, changed).narrow.nonzero()[0]:  # a wide one stays wide next to other files
            changed[column] = (values[:, column] != values[:, column].astype(np.float32)).any()
    return Extent(low, high, changed)


def check_told_apart(extents: Sequence[Extent], called: Callable[[int], str]) -> None:
    """Check that float32 tells apart the values of each column, of which each file has an extent.

    The `InputError` names the first column that it does not, as `called` does. Images and tokens have no extent.
    """
    if not extents:
        return
    low, high, changed = (np.stack(parts) for parts in zip(*extents, strict=True))
    whole = Extent(low.min(axis=0), high.max(axis=0), changed.max(axis=0))
    lost = (whole.narrow & whole.changed).nonzero()[0]
    if len(lost):
        first, last = (f"{part[lost[0]]:.12g}" for part in (whole.low, whole.high))
        raise InputError(
            f"{called(int(lost[0]))} has values from {first} to {last}, and 32-bit floats, in which models compute,"
            f" round away their differences: rescale the column, for example subtract {first} from all its values."
        )
