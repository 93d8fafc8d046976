"""Columns whose values look wrong: outliers that hide all other values, and clients that measure in another unit.

A column is a feature of vectors, or a channel of series and images.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, listed
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.partition import ClientIndices
from ktpfl_pipeline.data.sources.parts import STEPS

FAR = 10
"""The interquartile ranges beyond the quartiles of a column from which a value is an outlier."""
SQUEEZED = 3
"""The factor by which outliers raise the standard deviation of a column when they hide its other values."""
APART = 3
"""The interquartile ranges between the medians of a client and of the others that point to another unit."""
VALUES, ROWS = 10, 10
"""Columns with at most `VALUES` values are categories. Clients with fewer than `ROWS` rows are not compared."""
SAMPLED = 2000  # values of a column per client, from which its quantiles are computed
RARE, MANY = 0.02, 20
"""A feature that is 1 in at most a share `RARE` of the samples is rare. More than `MANY` of them cause a warning."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def one_per_value(inputs: Tensor) -> str:
    """Return why vectors, (M, F), look as if a column of ids became one feature per value; empty if they do not."""
    if inputs.dim() != 2 or not inputs.is_floating_point():
        return ""
    samples, features = inputs.shape
    used = inputs.ne(0)
    flags = (used.logical_not() | inputs.eq(1)).all(dim=0)
    rare = int((flags & (used.sum(dim=0) <= RARE * samples)).sum())
    if features > samples:
        found = f"{features:,} features, more than there are samples ({samples:,})"
    elif rare > max(MANY, features / 2):
        found = f"{features:,} features, and {rare:,} of them are 1 in at most {RARE:.0%} of the samples and else 0"
    else:
        return ""
    return (
        f"samples have {found}. A column of ids, of free text, or of numbers with a text for missing values becomes "
        "one feature per value: drop such columns, or name what is missing; `ktpfl convert csv` shows what each became."
    )


def tell_the_class(samples: LabeledDataset) -> str:
    """Return which features of vectors have one value in each class, not the same in all; empty if none has."""
    if samples.inputs.dim() != 2 or not samples.inputs.is_floating_point():
        return ""
    values, labels = samples.inputs.numpy(), samples.labels.numpy()
    own = [values[labels == label] for label in np.unique(labels)]
    lows, highs = (np.stack([bound(each, axis=0) for each in own]) for bound in (np.min, np.max))
    told = np.flatnonzero((lows == highs).all(axis=0) & (np.sum(values != lows[0], axis=0) >= ROWS)).tolist()
    if not told:
        return ""
    return (
        f"{listed([_named(samples, number) for number in told], 3)} tells the class: each class has one value there. "
        "If it was made from the label, leave it out."
    )


def of_columns(
    samples: LabeledDataset, training: Tensor, clients: Sequence[ClientIndices], names: Sequence[str], where: str
) -> None:
    """Warn of outliers in features, and of clients whose values of a column are far from those of most others.

    Args:
        samples: M samples with features.
        training: the indices of the training samples of all clients, with any seed.
        clients: the indices of each client's samples.
        names: the names of natural clients; empty for other clients, which have the same units.
        where: the source, for messages.

    Raises:
        InputError: if standardization by the outliers of a column makes all its other values equal.
    """
    far, rows = list[str](), samples.inputs[0][0].numel()
    apart = _units(samples, clients, names) if names else {}
    for number in range(samples.inputs.shape[1]):
        found = outliers(samples.inputs[:, number].flatten().numpy().astype(np.float64))
        if found is None:
            continue
        where_far = found.places // rows
        if found.erased and np.isin(where_far, training).any():
            raise InputError(
                f"{where}: {_named(samples, number)} has {found}. Standardized by them, the other values are one number"
                f" in 32-bit floats: correct such values, as in sample {where_far[0]} (samples count from 0), or leave"
                " the samples out."
            )
        if number not in apart:
            far.append(f"{_named(samples, number)} has {found} (sample {where_far[0]})")
    if far:
        warn(
            "Outliers",
            f"{where}: {listed(far, 3)}. Standardization makes the others nearly equal. If such a value means no data, "
            "replace it, for a table with `ktpfl convert csv --missing <value>`.",
        )
    if apart:
        warn(
            "Units",
            f"{where}: {listed([*apart.values()], 3)} (5 to 95 % of the values). If that is another unit, or a code "
            "for no data, convert the values.",
        )


def _named(samples: LabeledDataset, number: int) -> str:
    return f"column {number} (from 0)" if samples.columns is None else f"column {samples.columns[number]!r}"


@dataclass(frozen=True)
class Outliers:
    """Values of a column that are far from all others: the gap is wider than the range of the others."""

    values: "np.ndarray[Any, Any]"  #: (n,), in the order of the column
    places: "np.ndarray[Any, Any]"  #: (n,), their indices in the column
    low: float  #: the lowest of the other values
    high: float  #: the highest of the other values
    erased: bool  #: whether standardization makes the others one number in 32-bit floats

    def __str__(self) -> str:
        counts = Counter(self.values.tolist())
        most = [f"{value:.6g}" + f" ({n:,} times)" * (n > 1) for value, n in counts.most_common()]
        return f"{listed(most, 3)}, and its other values are from {self.low:.6g} to {self.high:.6g}"


def outliers(column: "np.ndarray[Any, Any]") -> Outliers | None:
    """Return the outliers of a column, (n,) float64, that hide its other values from models; None if there are none."""
    tenth, quarter, half, most = np.quantile(column, (0.1, 0.25, 0.75, 0.9))
    low, high = (quarter, half) if quarter < half else (tenth, most)  # most values may be equal
    reach = FAR * (high - low)
    far = (column < low - reach) | (column > high + reach)
    if low == high or not far.any():
        return None
    others, out = column[~far], column[far]
    gap = np.maximum(others.min() - out, out - others.max()).min()
    mean, spread = column.mean(), column.std()
    if gap <= np.ptp(others) or spread <= SQUEEZED * others.std():
        return None
    largest = np.float32(max(abs(others.min() - mean), abs(others.max() - mean)) / spread)
    erased = bool(np.ptp(others) / spread < STEPS * np.spacing(largest))
    return Outliers(out, np.flatnonzero(far), float(others.min()), float(others.max()), erased)


def _units(samples: LabeledDataset, clients: Sequence[ClientIndices], names: Sequence[str]) -> dict[int, str]:
    """Return the columns in which some clients' values are far from those of most others, each in words."""
    quantiles, places = list["np.ndarray[Any, Any]"](), list[int]()
    for place, own in enumerate(clients):
        rows = samples.inputs[torch.cat(own)].transpose(0, 1).flatten(1)  # (C, n · steps)
        if len(rows[0]) >= ROWS:
            some = rows[:, :: math.ceil(len(rows[0]) / SAMPLED)].numpy().astype(np.float64)
            quantiles.append(np.quantile(some, QUANTILES, axis=1))
            places.append(place)
    told, pair = dict[int, str](), len(places) == 2
    for number in range(samples.inputs.shape[1] if len(places) > 1 else 0):
        columns = np.stack(quantiles)[:, :, number]  # (n, 5)
        usual = columns[1] if pair else np.median(columns, axis=0)
        apart = np.flatnonzero([_apart(each, usual) for each in columns])
        if not len(apart) or len(apart) > len(columns) / 2:
            continue
        if len(np.unique(samples.inputs[:, number][:SAMPLED])) <= VALUES:
            continue
        far = columns[apart[0]]
        told[number] = (
            f"{_named(samples, number)} is {far[0]:.4g} to {far[4]:.4g} at client "
            f"{listed([names[places[n]] for n in apart], 3)}, and {usual[0]:.4g} to {usual[4]:.4g} at "
            f"{f'client {names[places[1]]}' if pair else 'most others'}"
        )
    return told


def _apart(one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]") -> bool:
    """Return whether two distributions, each given by `QUANTILES`, are far from each other, also on a log scale."""
    if one[0] <= other[4] and other[0] <= one[4]:
        return False
    scales = [(one, other)]
    if min(one[0], other[0]) > 0:
        scales.append((np.log(one), np.log(other)))
    widths = [max(a[3] - a[1], b[3] - b[1]) for a, b in scales]
    return any(width > 0 and abs(a[2] - b[2]) > APART * width for (a, b), width in zip(scales, widths, strict=True))
