"""Converter of CSV files with features, a label column and optionally a client column: `ktpfl convert csv`.

A numeric column becomes one feature with the same values. A text column is one-hot encoded: one feature per value, 0 or
1. A text column with more than `MAX_VALUES` values, such as an id, a name or free text, is an error.
"""

import math
import re
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ktpfl_pipeline.core.errors import InputError, listed, meant, plural
from ktpfl_pipeline.data.owned import composed
from ktpfl_pipeline.data.sources.features import check_told_apart, extent
from ktpfl_pipeline.data.sources.labels import NUMBER, numbered
from ktpfl_pipeline.data.sources.table import Cells, Table, read

MISSING = ("?", "-", ".", "NA", "N/A", "n/a", "nan", "NaN", "null", "None")
"""Cells that count as missing in feature columns. In the columns of labels and clients they are names."""
LARGEST = float(np.finfo(np.float32).max)
MAX_VALUES = 50  # of a text column; more values are probably not categories
DECIMALS = (".", ",")
GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?", re.ASCII)
"""A number with points as thousands separators and a comma as decimal separator."""
Arrays = dict[str, "np.ndarray[Any, Any]"]


def convert(
    file: Path,
    label: str,
    client: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[str] = (),
    *,
    drop_rows: bool = False,
    decimal: str = ".",
) -> tuple[Arrays, list[str]]:
    """Return the arrays for an `.npz` file, and one line of text about the conversion of each column.

    A cell is missing if it is empty or one of `missing`. In a feature column, a cell in `MISSING` is missing too. Rows
    without a label, or without a client, are left out.

    Args:
        file: the CSV file.
        label: the column of labels.
        client: the column of clients; None if there is none.
        drop: columns to leave out.
        missing: further strings that mean a missing value.
        drop_rows: whether to leave out all rows with a missing value. Otherwise, a missing number is replaced by the
            median of its column, and a missing text is a separate value.
        decimal: the decimal separator, ``"."`` or ``","``.

    Raises:
        InputError: if the file is not a table, a column does not exist, there is only one class, or a column cannot be
            converted to features.
    """
    if decimal not in DECIMALS:
        raise InputError(f"--decimal is {decimal!r}, and only '.' and ',' are possible: choose one of them.")
    table: Table = read(file)
    for option, wanted in (("label", label), ("client", client), *(("drop", name) for name in drop)):
        if wanted is not None and wanted not in table:
            near, columns = meant(wanted, table), listed([*table])
            raise InputError(f"--{option} is {wanted!r}, and {file} has no such column{near}: it has {columns}.")
    needed = [label, *([client] if client else [])]
    if both := [name for name in needed if name in drop]:
        raise InputError(f"--drop is {both[0]!r}, which is the column of the label or the client: do not drop it.")
    said = [f"{name}: left out" for name in drop]
    unknown = {name: {*missing} if name in needed else {*MISSING, *missing} for name in table if name not in drop}
    table = {name: [None if cell in texts else cell for cell in table[name]] for name, texts in unknown.items()}
    rows = zip(*(table[name] for name in (table if drop_rows else needed)), strict=True)
    kept = [None not in row for row in rows]
    if lost := kept.count(False):
        what = "a value" if drop_rows else " or ".join(needed)
        said.append(f"{lost:,} of {plural(len(kept), 'row')} without {what}: left out")
    table = {name: list(compress(cells, kept)) for name, cells in table.items()}
    if not any(kept):
        raise InputError(f"{file} has no row with all that is needed: check the columns and what counts as missing.")
    names, labels = numbered(table[label])
    if len(names) == 1:
        raise InputError(
            f"column {label!r} of {file} has one class, {names[0]!r} (rows kept: {len(labels):,}): name a column of"
            " two or more classes with --label, or convert a larger part of the table."
        )
    said.append(f"{label}: the label, {len(names)} classes ({listed(names)})")
    arrays: Arrays = {"labels": labels.numpy(), "classes": np.array(names)}
    if client:
        arrays["clients"] = np.array([composed(cell) for cell in table[client]])
        said.append(f"{client}: the client, {len(np.unique(arrays['clients']))} of them")
    for name in needed:
        if odd := sorted({*MISSING}.intersection(map(str, table[name]))):
            said.append(f"{name}: {odd[0]!r} is a name here; if it means a missing value, add --missing {odd[0]!r}")
    rows_kept = [row for row, keep in enumerate(kept, 2) if keep]  # row numbers in the file, where row 1 has the names
    parts = [_feature(file, name, cells, rows_kept, decimal) for name, cells in table.items() if name not in needed]
    if not parts:
        raise InputError(f"{file} has no column besides {' and '.join(needed)}: features are needed.")
    arrays["features"] = np.concatenate([part.values for part in parts], axis=1)
    arrays["columns"] = np.array([name for part in parts for name in part.names])
    return arrays, [*said, *(part.said for part in parts)]


class _Feature(NamedTuple):
    """The features of one column: values, (N, F) float32, names of the F features, and a line of text about them."""

    values: "np.ndarray[Any, Any]"
    names: list[str]
    said: str


def _feature(file: Path, name: str, cells: Cells, rows: Sequence[int], decimal: str) -> _Feature:
    absent = cells.count(None)
    if absent == len(cells):
        raise InputError(f"column {name!r} of {file} has no value: leave it out with --drop {name!r}.")
    numbers = _as_numbers(file, name, cells, rows, decimal)
    if numbers is None:
        return _one_hot(file, name, cells, absent, decimal)
    said = f"{name}: numbers"
    if absent:
        middle = float(np.nanmedian(numbers))
        numbers = np.where(np.isnan(numbers), middle, numbers)
        said += f", {absent:,} missing, which are now the median of all rows, {middle:g}"
    elif len(numbers) > 2 and (np.diff(numbers) == 1).all():
        said += f" that count the rows, which no model should learn from: leave them out with --drop {name!r}"
    check_told_apart([extent(numbers[:, None])], lambda _: f"column {name!r} of {file}")
    return _Feature(numbers[:, None].astype(np.float32), [name], said)


def _as_numbers(
    file: Path, name: str, cells: Cells, rows: Sequence[int], decimal: str
) -> "np.ndarray[Any, Any] | None":
    """Return a column as numbers, (N,) float64, with NaN for missing values; None if a value is not a number.

    Raises InputError for a number that is ambiguous or too large. `rows` has the row numbers for the message.
    """
    given = [(row, cell) for row, cell in zip(rows, cells, strict=True) if cell is not None]
    if not all(_is_plain(cell, decimal) or (decimal == "," and GROUPED.fullmatch(cell)) for _, cell in given):
        return None
    for row, cell in given:
        if decimal == "," and "." in cell:
            raise InputError(
                f"column {name!r} of {file} has {cell!r} in row {row}, and --decimal is ',': write its numbers without"
                f" points, or leave it out with --drop {name!r}."
            )
        if abs(float(cell.replace(decimal, "."))) > LARGEST:
            raise InputError(
                f"column {name!r} of {file} has {cell!r} in row {row}, which is too large for a 32-bit float: correct"
                f" it, or write --missing {cell!r} if it means a missing number."
            )
    return np.array([math.nan if cell is None else float(cell.replace(decimal, ".")) for cell in cells])


def _is_plain(cell: str, decimal: str) -> bool:
    return NUMBER.fullmatch(cell.replace(decimal, ".")) is not None


def _one_hot(file: Path, name: str, cells: Cells, absent: int, decimal: str) -> _Feature:
    texts = ["missing" if cell is None else cell for cell in cells]
    values = sorted(set(texts))
    if len(values) > MAX_VALUES:
        others = [text for text in values if not _is_plain(text, decimal) and text != "missing"]
        hint = ""
        if len(others) < len(values) / 2:
            hint = f", or write --missing {others[0]!r} if {others[0]!r} means a missing number"
        raise InputError(
            f"column {name!r} of {file} has {len(values):,} different texts in {len(texts):,} rows, which would be as"
            f" many features: leave it out with --drop {name!r}{hint}."
        )
    one_hot = (np.array(texts)[:, None] == np.array(values)).astype(np.float32)
    said = f"{name}: {plural(len(values), 'feature')}, one per value ({listed(values)})"
    return _Feature(one_hot, [f"{name}={value}" for value in values], said + f", {absent:,} missing" * (absent > 0))
