"""Converter of CSV files with features, a label column and optionally a client column: `ktpfl convert csv`.

A numeric column becomes one feature with the same values. A text column is one-hot encoded: one feature per value, 0 or
1. A text column with more than `MAX_VALUES` values, such as an id, a name or free text, is an error, and so is one of
numbers in another format. The names of the features and their values for missing cells encode rows of another table.
"""

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ktpfl_pipeline.core.errors import InputError, listed, meant, plural
from ktpfl_pipeline.data.columns import VALUES, outliers
from ktpfl_pipeline.data.inspection import alike, differ
from ktpfl_pipeline.data.owned import composed
from ktpfl_pipeline.data.sources.parts import MISSING, NUMBER, check_told_apart, extent, numbered
from ktpfl_pipeline.data.sources.table import Cells, Table, read

LARGEST = float(np.finfo(np.float32).max)
MAX_VALUES = 50  # of a text column; more values are probably not categories
DECIMALS = (".", ",")
NUMERAL = re.compile(r"[+-]?(\d{1,3}([ .,'\u2019\u00a0\u202f]\d{3})+|\d+)([.,]\d*)?|[+-]?[.,]\d+", re.ASCII)
"""A number with a point or a comma, and possibly with separators of thousands."""
THOUSANDS = re.compile(r"\d[ .,'\u2019\u00a0\u202f]\d{3}(?!\d)", re.ASCII)
GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?", re.ASCII)
"""A number with points as thousands separators and a comma as decimal separator."""
POINTS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}|[+-]?\d{1,3}", re.ASCII)
"""A number that may have a point as thousands separator, or that is too small for one."""
CODE = re.compile(r"0\d+|\d+[eE]\d+", re.ASCII)
"""A number as codes are written: 0123, or 1E5 for a place on a plate."""
ID = re.compile(r"(?i:(.*[\W_])?id)|.*[a-z]I[Dd]")
MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
TIME = r"\d\d?:\d\d"
NUMBERED = r"\d{4}([./-])\d\d?\2\d\d?|\d\d?([./-])\d\d?\3\d\d(\d\d)?"
NAMED = rf"\d\d?[. -]+{MONTH}[. -]+\d\d(\d\d)?|{MONTH}\.? \d\d?,? \d{{4}}"
DATE = re.compile(rf"({NUMBERED}|{NAMED})([ T,]+{TIME}.*)?|{TIME}(:\d\d)?( ?[ap]m)?", re.ASCII | re.IGNORECASE)
"""A date, also with the name of a month, with or without a time; or a time of the day."""
UNIT = re.compile(r"([€$£¥]?\s*)(\S*\d|\d)(\D*)")
"""A number with a currency before it, or with a unit after it."""
Arrays = dict[str, "np.ndarray[Any, Any]"]


def convert(
    file: Path,
    label: str | None,
    client: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[str] = (),
    *,
    group: str | None = None,
    text: Sequence[str] = (),
    drop_rows: bool = False,
    decimal: str = ".",
    like: Mapping[str, Any] | None = None,
) -> tuple[Arrays, list[str]]:
    """Return the arrays for an `.npz` file, and one line of text about the conversion of each column.

    A cell is missing if it is empty or one of `missing`. In a feature column, a cell in `MISSING` is missing too, and
    so is a number that equals one of `missing`. Rows without a label, a client or a group are left out.

    Args:
        file: the CSV file.
        label: the column of labels; None, only with `like`, if there are no labels.
        client: the column of clients; None if there is none.
        drop: columns to leave out.
        missing: further strings that mean a missing value.
        group: the column of groups, such as patients; None if there is none.
        text: columns whose values are categories although they look like numbers.
        drop_rows: whether to leave out all rows with a missing value. Otherwise, a missing number is replaced by the
            median of its column, and a missing text is a separate value.
        decimal: the decimal separator, ``"."`` or ``","``.
        like: the arrays of an earlier conversion. Its features, classes, strings that mean a missing value, and values
            for missing cells are used, and other columns are ignored.

    Raises:
        InputError: if the file is not a table, a column does not exist, there is only one class, or a column cannot be
            converted to features.
    """
    if decimal not in DECIMALS:
        raise InputError(f"--decimal is {decimal!r}, and only '.' and ',' are possible: choose one of them.")
    table: Table = read(file)
    _check_columns(file, table, {"label": [label], "client": [client], "group": [group], "drop": drop, "text": text})
    needed = [name for name in (label, client, group) if name]
    if both := [name for name in needed if name in drop]:
        raise InputError(f"--drop is {both[0]!r}, which is the column of the label or the client: do not drop it.")
    said = [f"{name}: left out" for name in drop]
    known: list[str] = [] if like is None else [str(each) for each in like.get("missing", ())]
    table, unused = _with_missing(
        {name: table[name] for name in table if name not in drop}, [*missing, *known], needed, text, decimal
    )
    said += [f"--missing {each!r}: in no column" for each in missing if each in unused]
    rows = list(zip(*(table[name] for name in (table if drop_rows else needed)), strict=True))
    kept = [None not in row for row in rows] or [True] * len(next(iter(table.values()), ()))
    if lost := kept.count(False):
        what = "a value" if drop_rows else " or ".join(needed)
        said.append(f"{lost:,} of {plural(len(kept), 'row')} without {what}: left out")
    table = {name: list(compress(cells, kept)) for name, cells in table.items()}
    if not any(kept):
        raise InputError(f"{file} has no row with all that is needed: check the columns and what counts as missing.")
    arrays: Arrays = {"missing": np.array(means)} if (means := [*dict.fromkeys((*missing, *known))]) else {}
    if label:
        arrays |= _labels(file, label, table[label], like)
        names = arrays["classes"].tolist()
        said.append(f"{label}: the label, {len(names)} classes ({listed(names)}){_alike(names)}")
    for what, column in (("client", client), ("group", group)):
        if column:
            arrays[f"{what}s"] = np.array([composed(cell) for cell in table[column]])
            names = np.unique(arrays[f"{what}s"]).tolist()
            said.append(f"{column}: the {what}, {len(names)} of them{_alike(names)}")
    for name in needed:
        if odd := sorted({*MISSING}.intersection(map(str, table[name]))):
            said.append(f"{name}: {odd[0]!r} is a name here; if it means a missing value, add --missing {odd[0]!r}")
    rows_kept = [row for row, keep in enumerate(kept, 2) if keep]  # row numbers in the file, where row 1 has the names
    if like is not None:
        features = {name: cells for name, cells in table.items() if name not in needed}
        return arrays | encoded(file, features, like, rows_kept, decimal), said
    _check_names(file, [name for name in table if name not in needed])
    parts = [
        _feature(file, name, cells, rows_kept, decimal, name in text)
        for name, cells in table.items()
        if name not in needed
    ]
    if not parts:
        raise InputError(f"{file} has no column besides {' and '.join(needed)}: features are needed.")
    arrays["features"] = np.concatenate([part.values for part in parts], axis=1)
    arrays["columns"] = np.array([name for part in parts for name in part.names])
    arrays["fill"] = np.concatenate([part.fill for part in parts]).astype(np.float32)
    return arrays, [*said, *(part.said for part in parts)]


def _with_missing(
    table: Table, missing: Sequence[str], needed: Sequence[str], text: Sequence[str], decimal: str
) -> tuple[Table, set[str]]:
    """Return a table with None for missing cells, and those of `missing` that it does not have."""
    made: Table = {}
    unused = {*missing}
    for name, cells in table.items():
        separator = None if name in (*needed, *text) else decimal
        made[name] = with_missing(cells, missing if name in needed else (*MISSING, *missing), separator)
        given: Cells = [cell for cell in {*cells} if cell is not None]
        unused -= {each for each in unused if None in with_missing(given, [each], separator)}
    return made, unused


def with_missing(cells: Cells, missing: Collection[str], decimal: str | None) -> Cells:
    """Return the cells of a column, with None for each that is one of `missing`.

    With a `decimal` separator, numbers are compared by value, so that -999.0 is missing if -999 is.
    """
    numbers = {float(each.replace(decimal, ".")) for each in missing if decimal and _is_plain(each, decimal)}

    def is_missing(cell: str) -> bool:
        if cell in missing or not numbers or decimal is None or not _is_plain(cell, decimal):
            return cell in missing
        return float(cell.replace(decimal, ".")) in numbers

    lost = {cell for cell in {*cells} if cell is not None and is_missing(cell)}
    return [None if cell in lost else cell for cell in cells]


def _check_names(file: Path, names: Sequence[str]) -> None:
    """Raise InputError if the name of a column of features has a =, which is between a column and its category."""
    if odd := next((name for name in names if "=" in name), None):
        raise InputError(f"{file} has a column {odd!r}: rename it without =, which separates names from categories.")


def _check_columns(file: Path, table: Table, asked: Mapping[str, Sequence[str | None]]) -> None:
    """Raise InputError if a column that an option names is not in the table."""
    for option, wanted in ((option, name) for option, names in asked.items() for name in names):
        if wanted is not None and wanted not in table:
            near, columns = meant(wanted, table), listed([*table])
            raise InputError(f"--{option} is {wanted!r}, and {file} has no such column{near}: it has {columns}.")


def _labels(file: Path, label: str, cells: Cells, like: Mapping[str, Any] | None) -> Arrays:
    """Return the class numbers of the cells of the label column, and the names of the classes."""
    if like is not None and "classes" in like:
        numbers = {str(name): number for number, name in enumerate(like["classes"])}
        names = [composed(cell) for cell in cells]
        if new := sorted({*names} - {*numbers}):
            raise InputError(f"column {label!r} of {file} has the class {new[0]!r}, which is not among {[*numbers]}.")
        return {"labels": np.array([numbers[name] for name in names]), "classes": np.array([*numbers])}
    names, labels = numbered(cells)
    if len(names) == 1:
        raise InputError(
            f"column {label!r} of {file} has one class, {names[0]!r} (rows kept: {len(labels):,}): name a column of"
            " two or more classes with --label, or convert a larger part of the table."
        )
    return {"labels": labels.numpy(), "classes": np.array(names)}


def _alike(names: Sequence[str]) -> str:
    """Return a note on names that differ only in form; empty if there are none."""
    found = alike(names)
    return f"; warning: {differ(found, 'names')}: correct them if they are one" if found else ""


class _Feature(NamedTuple):
    """The features of one column.

    Attributes:
        values: (N, F) float32.
        names: the names of the F features.
        fill: the values of the F features for a missing cell: the median, or the most frequent category.
        said: a line of text about them.
    """

    values: "np.ndarray[Any, Any]"
    names: list[str]
    fill: "np.ndarray[Any, Any]"
    said: str


def _feature(file: Path, name: str, cells: Cells, rows: Sequence[int], decimal: str, categories: bool) -> _Feature:
    absent = cells.count(None)
    if absent == len(cells):
        raise InputError(f"column {name!r} of {file} has no value: leave it out with --drop {name!r}.")
    numbers = None if categories else _as_numbers(file, name, cells, rows, decimal)
    if numbers is None:
        return _one_hot(file, name, cells, absent, None if categories else decimal)
    said, middle = f"{name}: numbers", float(np.nanmedian(numbers))
    if absent:
        numbers = np.where(np.isnan(numbers), middle, numbers)
        said += f", {absent:,} missing, which are now the median of all rows, {middle:g}"
    elif what := _index(name, numbers):
        said += f" {what}, which no model should learn from: leave them out with --drop {name!r}"
    if doubt := _doubts(name, [cell for cell in cells if cell], decimal):
        said += doubt
    elif found := outliers(numbers):
        said += f"; warning: {found}: if that means no data, add --missing {cells[found.places[0]]!r}"
    check_told_apart([extent(numbers[:, None])], lambda _: f"column {name!r} of {file}")
    return _Feature(numbers[:, None].astype(np.float32), [name], np.array([middle]), said)


def _doubts(name: str, cells: Sequence[str], decimal: str) -> str:
    """Return a warning of numbers that may be codes or have points as thousands separators; empty without doubt."""
    if code := next(filter(CODE.fullmatch, cells), None):
        return f"; warning: {code!r} may be a code: --text {name!r} takes codes as categories"
    points = [cell for cell in cells if "." in cell]
    if decimal == "." and VALUES <= len(points) < len(cells) and all(map(POINTS.fullmatch, cells)):
        number = points[0].replace(".", "")
        return f"; warning: {points[0]!r} is below a thousand here: if it means {number}, write numbers without points"
    return ""


def _index(name: str, numbers: "np.ndarray[Any, Any]") -> str:
    """Return why a column looks like an index of the rows, such as pandas writes it; empty if it does not."""
    steps = np.diff(numbers)
    if len(numbers) > 2 and (steps == 1).all():
        return "that count the rows"
    whole = bool((numbers == np.floor(numbers)).all() and len(np.unique(numbers)) == len(numbers))
    if whole and (not name or name.startswith("Unnamed")):
        return "without a name, as pandas writes the index of the rows"
    if (numbers == np.floor(numbers)).all() and ID.fullmatch(name):
        return "that are called an id"
    return "that rise with every row, as an index does" if whole and len(steps) >= VALUES and (steps > 0).all() else ""


def _as_numbers(
    file: Path, name: str, cells: Cells, rows: Sequence[int], decimal: str
) -> "np.ndarray[Any, Any] | None":
    """Return a column as numbers, (N,) float64, with NaN for missing values; None if a value is not a number.

    Raises InputError for a number that is ambiguous or too large. `rows` has the row numbers for the message.
    """
    cells = [cell and cell.replace("\N{MINUS SIGN}", "-") for cell in cells]
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


def _check_categories(file: Path, name: str, values: Sequence[str], decimal: str) -> None:
    """Raise InputError if the values of a text column are numbers in another format, or numbers with a few texts."""
    if len(values) > VALUES and (what := _measured(values, decimal)):
        raise InputError(
            f"column {name!r} of {file} has {what}. If they are categories, write --text {name!r}; --drop {name!r} "
            "leaves the column out."
        )
    numbers = [value for value in values if NUMERAL.fullmatch(value) or _is_plain(value, decimal)]
    texts = [value for value in values if value not in numbers]
    if not numbers or (texts and not (len(numbers) > VALUES and len(texts) < len(numbers) / 2)):
        return
    odd = [number for number in numbers if not _is_plain(number, decimal)]
    advice = []
    if odd and all(_is_plain(number, ",") for number in numbers):
        advice.append("write --decimal ',' if it has decimal commas")
    if odd and not (advice and not any(map(THOUSANDS.search, odd))):
        advice.append("write its numbers as digits with a decimal point, without separators of thousands")
    if texts:
        advice.append(f"write --missing {texts[0]!r} if {texts[0]!r} means a missing number")
    raise InputError(
        f"column {name!r} of {file} has numbers such as {(odd or numbers)[0]!r}, which would become a feature for each "
        f"value: {', or '.join(advice)}. If they are categories, write --text {name!r}."
    )


def _measured(values: Sequence[str], decimal: str) -> str:
    """Return what texts are that are all dates, numbers with one unit, or digits of another script; empty if none."""
    become = f"such as {values[0]!r}, which would become a feature for each value: write"
    if all(map(DATE.fullmatch, values)):
        return f"dates or times {become} a number, for example days since a fixed day"
    parts = [UNIT.fullmatch(value) for value in values]
    digits = [each and "".join(str(unicodedata.decimal(sign, sign)) for sign in each[2]) for each in parts]
    units = {each and (each[1].strip(), each[3].strip()) for each in parts}
    if (
        len(units) == 1
        and digits != list(values)
        and all(each and (NUMERAL.fullmatch(each) or _is_plain(each, decimal)) for each in digits)
    ):
        return f"numbers {become} them with the digits 0 to 9 and a decimal point, without a unit"
    return ""


def _one_hot(file: Path, name: str, cells: Cells, absent: int, decimal: str | None) -> _Feature:
    """Return the features of a text column; `decimal` None takes numbers as categories too."""
    texts = ["missing" if cell is None else cell for cell in cells]
    values = sorted(set(texts))
    if decimal is not None:
        _check_categories(file, name, sorted({cell for cell in cells if cell is not None}), decimal)
    if len(values) > MAX_VALUES:
        raise InputError(
            f"column {name!r} of {file} has {len(values):,} different texts in {len(texts):,} rows, which would be as"
            f" many features: leave it out with --drop {name!r}."
        )
    one_hot = (np.array(texts)[:, None] == np.array(values)).astype(np.float32)
    usual = values.index("missing") if absent else int(one_hot.sum(axis=0).argmax())
    said = f"{name}: {plural(len(values), 'feature')}, one per value ({listed(values)})"
    said += f", {absent:,} missing" * (absent > 0) + _alike(values)
    return _Feature(one_hot, [f"{name}={value}" for value in values], np.eye(len(values))[usual], said)


def encoded(file: Path, table: Table, like: Mapping[str, Any], rows: Sequence[int], decimal: str = ".") -> Arrays:
    """Return the features of another table in the form of the arrays `like`, (N, F) float32, with the same names."""
    columns, fill = [str(name) for name in like["columns"]], np.asarray(like["fill"])
    features = np.tile(fill, (len(rows), 1))
    categories: dict[str, dict[str, int]] = {}  # the place of each category's feature, by column and category
    for place, name in enumerate(columns):
        source, _, value = name.partition("=")
        if name in table:
            numbers = _as_numbers(file, name, table[name], rows, decimal)
            if numbers is None:
                raise InputError(f"column {name!r} of {file} has texts, and numbers are needed: correct them.")
            features[:, place] = np.where(np.isnan(numbers), fill[place], numbers)
        elif source in table:
            categories.setdefault(source, {})[value] = place
        else:
            raise InputError(f"{file} has no column {source!r}: add it; its cells may be empty.")
    for name, places in categories.items():
        for place, (row, cell) in enumerate(zip(rows, table[name], strict=True)):
            if cell is not None and cell not in places:
                raise InputError(f"column {name!r} of {file} has {cell!r} in row {row}: its values are {[*places]}.")
            if cell is not None:
                features[place, [*places.values()]] = 0
                features[place, places[cell]] = 1
    return {"features": features.astype(np.float32), "columns": np.array(columns), "fill": fill}
