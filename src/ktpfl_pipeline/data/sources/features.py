"""Conversion of features to float32, with checks that all values are finite and that columns keep their variation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError

STEPS = 1000
"""The smallest range of a column in units of float32's spacing, if float32 changes values of the column. With a smaller
range, rounding hides differences. A column with a smaller range in float64's spacing counts as constant."""


class Extent(NamedTuple):
    """The range of each column. A column is a feature of a vector, or a channel of a series or an image.

    Attributes:
        low: (C,) float64, the lowest value.
        high: (C,) float64, the highest value.
        changed: (C,) bool, whether float32 changes any value. It is computed only for narrow columns.
    """

    low: "np.ndarray[Any, Any]"
    high: "np.ndarray[Any, Any]"
    changed: "np.ndarray[Any, Any]"

    @property
    def narrow(self) -> "np.ndarray[Any, Any]":
        """Whether a column's range is below `STEPS` spacings of float32, but not of float64, (C,) bool."""
        span, largest = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        steps, noise = STEPS * np.spacing(largest.astype(np.float32)), STEPS * np.spacing(largest)
        narrow: np.ndarray[Any, Any] = (noise < span) & (span < steps)
        return narrow


def as_float32(values: "np.ndarray[Any, Any]", where: str) -> Tensor:
    """Return features, (N, ...), in float32. Raises InputError, which names `where`, if a value is not finite."""
    with np.errstate(over="ignore"):  # values that are too large become infinite, which is an error below
        features = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    check_finite(features, where)
    return features


def check_finite(features: Tensor, where: str) -> None:
    """Raise InputError if a value of features, (N, ...) float32, is not finite. The message names the first row."""
    finite = features.isfinite().flatten(1)
    if not finite.all():
        row = int(finite.all(dim=1).logical_not().nonzero()[0, 0])
        value = features[row].flatten()[~finite[row]][0].item()
        raise InputError(f"{where} has {value} in row {row} (rows count from 0): replace it, or leave the row out.")


def extent(values: "np.ndarray[Any, Any]") -> Extent:
    """Return the extent of finite features, (N, C, ...), before their conversion to float32."""
    along = (0, *range(2, values.ndim))
    low, high = (part.astype(np.float64) for part in (values.min(axis=along), values.max(axis=along)))
    changed = np.zeros(len(low), dtype=bool)
    if values.dtype.itemsize > 4:
        for column in Extent(low, high, changed).narrow.nonzero()[0]:  # other files can only widen a column
            changed[column] = (values[:, column] != values[:, column].astype(np.float32)).any()
    return Extent(low, high, changed)


def check_told_apart(extents: Sequence[Extent], called: Callable[[int], str]) -> None:
    """Raise InputError if float32 would round away the differences between the values of a column.

    `extents` has the extent of the features of each file; it is empty for images and tokens. `called` returns the name
    of a column for the message.
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
