"""The source `table`: a CSV file with one row per image file: its path, its label, and optionally its client."""

import csv
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.core.machine.resources import check_claim, gib
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.sources.files import MAX_FILE, check_file, file_in, readable
from ktpfl_pipeline.data.sources.folder import TEST, TRAIN, VALIDATION, tested
from ktpfl_pipeline.data.sources.parts import Part, joined
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading, photographs

Meaning = TypeVar("Meaning")
Cells = list[str | None]
Table = dict[str, Cells]
"""The cells of each column by the column's name; None for an empty cell."""

SPLITS = TRAIN | VALIDATION | TEST
OPTIONAL = ("client", "split", "group")
"""Optional columns."""
PARSED = 100  # bytes of memory per byte of a CSV file, at most, as Python strings
SIZED = True


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the images that a table lists; an `OwnedDataset` if the table has a column `client`.

    The first line names the columns, in any order. Other columns are ignored:
        path: the path of the image file, relative to the table's folder and within this folder.
        label: the class, a name or a number; classes are numbered `in_order`.
        client: optional: the client that owns the image.
        split: optional: train, val or test, with the same meaning as the folders of these names in the source `folder`.
        group: optional: what the image belongs to, such as a patient; a group stays on one side of every split.

    Raises:
        InputError: if a column or a cell is missing, if image files are missing, or if images cannot be read.
    """
    place, table = _table(argument, folder, ("path", "label"))
    images, kept = _images(place, table, reading)
    return joined(place, [part_of(place, table, images, kept=kept)])


def unlabeled(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, None]:
    """Return the images that a table lists, (N, C, H, W) uint8, and None for the vocabulary; only `path` is needed."""
    place, table = _table(argument, folder, ("path",))
    return _images(place, table, reading)[0], None


def read(file: Path) -> Table:
    """Return the columns of a CSV file by name. Cells are strings without surrounding spaces, or None if empty.

    The separator is a comma, semicolon, tab or vertical bar; it is detected in the first line. Cells may be quoted.
    Raises InputError if the file does not exist, is too large, or is not a UTF-8 table with rows of equal length.
    """
    if not file.is_file():
        raise InputError(f"there is no file {file}: correct the path of the table.")
    if (size := file.stat().st_size) > MAX_FILE:
        raise InputError(f"{file} has {size:,} bytes, more than the {gib(MAX_FILE)} allowed: take a part of it.")
    check_claim(file, size * PARSED, "take a part of it")
    with (
        readable(file, "is not a table in UTF-8", "save it as CSV in UTF-8, with a line of column names"),
        file.open(encoding="utf-8-sig", newline="") as text,
    ):
        first = text.readline()
        separator = max(",;\t|", key=lambda sign: len(next(csv.reader([first], delimiter=sign), ())))
        text.seek(0)
        rows = [[cell.strip() for cell in row] for row in csv.reader(text, delimiter=separator, strict=True) if row]
        names, cells = rows[0], rows[1:]
        if odd := next((place for place, row in enumerate(cells, 2) if len(row) != len(names)), None):
            raise ValueError(f"row {odd} has {plural(len(cells[odd - 2]), 'cell')} and the first row has {len(names)}")
        if len(set(names)) < len(names):
            raise ValueError("two columns have one name")
    return {name: [row[n] or None for row in cells] for n, name in enumerate(names)}


def opened(
    name: str, example: str, argument: str, folder: Path, needed: Sequence[str], optional: Sequence[str] = OPTIONAL
) -> tuple[Path, Table]:
    """Return the path of a table, and its columns by their names in lower case.

    Raises InputError if the file does not exist, has no rows, or lacks a column in `needed`. The message names the
    `optional` columns too.
    """
    place = file_in(name, argument, folder, example)
    given = read(place)
    found = {column.lower(): cells for column, cells in given.items()}
    times = Counter(map(str.lower, given))
    if twice := [column for column in (*needed, *optional) if times[column] > 1]:
        raise InputError(
            f"{place} has two columns {twice[0]!r} in capital and small letters: rename the one not meant."
        )
    if lacking := [column for column in needed if column not in found]:
        raise InputError(
            f"{place} has no column {' and no column '.join(map(repr, lacking))}, only {', '.join(found)}: name the"
            f" columns {', '.join(needed)} and, if it is known, {' and '.join(optional)}, in the first line."
        )
    known, pairs = (*needed, *optional), list[str]()
    for column in found.keys() - known:
        near = [each for each in get_close_matches(column, known, n=1, cutoff=0.75) if each not in found]
        pairs += [f"{column!r} ({each!r}?)" for each in near]
    if pairs:
        warn("Unread columns", f"{place} has columns that are not read: {listed(sorted(pairs))}. Rename those meant.")
    check_filled(place, found, needed[:1])
    if not found[needed[0]]:
        raise InputError(f"{place} has column names and no rows: add a row for each sample.")
    return place, found


def check_filled(place: Path, table: Table, names: Sequence[str], rows: Sequence[int] | None = None) -> None:
    """Raise InputError if a cell is empty in the columns `names` that the table has; `rows` is as for `part_of`."""
    for name in names:
        if None in table.get(name, ()):
            row = _number(table[name].index(None), rows)
            raise InputError(f"{place} has no {name} in row {row}: fill it in, or leave the row out.")


def _number(row: int, rows: Sequence[int] | None) -> int:
    """Return the line number in the file of a row of a table, which may contain only the file's `rows`."""
    return 2 + (row if rows is None else rows[row])


def _table(argument: str, folder: Path, needed: Sequence[str]) -> tuple[Path, Table]:
    """Return the path of a table of images, and its columns. Raises InputError if a cell is empty."""
    place, found = opened("table", "photos.csv", argument, folder, needed)
    check_filled(place, found, (*needed, *OPTIONAL))
    return place, found


def _images(place: Path, table: Table, reading: Reading) -> tuple[Tensor, Tensor]:
    """Return the images that could be read, (M', C, H, W) uint8, and whether each row's image was read, (M,) bool."""
    paths = [str(path) for path in table["path"]]
    (path, times), *_ = Counter(map(os.path.normpath, paths)).most_common(1)
    if times > 1:
        raise InputError(f"{place} lists {path} {times} times: list each image once.")
    if outside := [path for path in paths if os.path.isabs(path) or os.path.normpath(path).startswith("..")]:
        raise InputError(
            f"{place} lists {outside[0]}, which is outside its folder: put the table next to the images, and write"
            " paths relative to it."
        )
    files = [place.parent / path for path in paths]
    there = [os.path.lexists(file) for file in files]
    if not all(there):
        lost = [path for path, found in zip(paths, there, strict=True) if not found]
        told = (
            f"{place} lists {plural(len(files), 'image')}, and its folder lacks {len(lost):,} of them: {listed(lost)}"
        )
        if not reading.skip or not any(there):
            raise InputError(
                f"{told}. Correct the paths, which start at the folder of the table, or set image.unreadable to skip."
            )
        warn("Unreadable files", f"{told}. Missing images are skipped.")
    for file in compress(files, there):
        check_file(file, place.parent)
    images, read_ = photographs(place, list(compress(files, there)), reading, listed=True)
    kept = torch.tensor(there)
    kept[kept.clone()] = read_
    return images, kept


def meant(
    place: Path,
    column: str,
    cells: Cells,
    meanings: Mapping[str, Meaning],
    allowed: str,
    rows: Sequence[int] | None = None,
) -> list[Meaning]:
    """Return the value in `meanings` for each cell of a column. Raises InputError, with `allowed`, for other cells."""
    names = [str(cell or "").lower() for cell in cells]
    for row, name in enumerate(names):
        if name not in meanings:
            raise InputError(f"{place} has the {column} {name!r} in row {_number(row, rows)}: write {allowed}.")
    return [meanings[name] for name in names]


def part_of(place: Path, table: Table, inputs: Tensor, rows: Sequence[int] | None = None, **others: Any) -> Part:
    """Return inputs with the labels, clients, groups and test flags of their rows, as far as the table has them.

    Args:
        place: the path of the table, for messages.
        table: M rows without empty cells.
        inputs: (m, ...), the inputs of the kept rows.
        rows: if the M rows are only a part of the file's rows, their indices in the file from 0, for messages.
        others: further fields of the part.

    Raises:
        InputError: if a split is not train, val or test.
    """
    test, names = None, {name: name for name in SPLITS}
    if "split" in table:
        test = tested(meant(place, "split", table["split"], names, "train, val or test", rows))
    return Part(place, inputs, table["label"], table.get("client"), test, table.get("group"), **others)
