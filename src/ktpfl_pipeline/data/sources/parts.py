"""What the readers of sources yield, columns of samples, and the one place that makes a dataset of them.

A reader knows one container: an `.npz` file, a folder of images, a table, or a JSON file of LEAF. It returns a `Part`,
whose labels and clients are as the container has them. `joined` numbers classes, clients and groups, and checks names.
Features become 32-bit floats: all values must be finite, and columns must keep their variation.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset, class_names, client_names, composed
from ktpfl_pipeline.data.sources.files import MAX_CLASSES

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number with a decimal point. Python also reads 18_25 as a number, which is text here."""
_SPREADSHEET = ("#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!")
"""What Excel and LibreOffice export for a formula without a value."""
MISSING = ("?", "-", ".", "NA", "N/A", "n/a", "nan", "NaN", "null", "None", *_SPREADSHEET)
"""Cells that count as missing in columns of features. In the columns of labels, clients and groups they are names."""
Array = np.ndarray[Any, Any]
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

    low: Array
    high: Array
    changed: Array

    @property
    def narrow(self) -> Array:
        """Whether a column's range is below `STEPS` spacings of float32, but not of float64, (C,) bool."""
        span, largest = self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high))
        steps, noise = STEPS * np.spacing(largest.astype(np.float32)), STEPS * np.spacing(largest)
        narrow: np.ndarray[Any, Any] = (noise < span) & (span < steps)
        return narrow


class Part(NamedTuple):
    """The samples of one container, or of one client in it, in M rows.

    Attributes:
        where: the container, for messages.
        inputs: (m, ...), the inputs of the kept rows.
        labels: (M,) class numbers, or M names of classes.
        clients: the owner of each row: M names or numbers; None if the container names no owners.
        test: M booleans, whether each row is a test sample; None if the container has no split.
        groups: the group of each row, such as a patient: M names or numbers; None without groups.
        classes: the names of the classes, if the labels are numbers and the container names them.
        kept: (M,) bool, whether each row could be read; None: all rows. A source with several parts keeps all.
        vocabulary, columns, fill, missing: as in `LabeledDataset`.
        extent: the range of features before their conversion to 32-bit floats; None for other inputs.
    """

    where: object
    inputs: Tensor
    labels: Array | Sequence[Any]
    clients: Array | Sequence[Any] | None = None
    test: Array | Sequence[Any] | None = None
    groups: Array | Sequence[Any] | None = None
    classes: Iterable[object] | None = None
    kept: Tensor | None = None
    vocabulary: Vocabulary | None = None
    columns: tuple[str, ...] | None = None
    fill: Tensor | None = None
    missing: tuple[str, ...] = ()
    extent: Extent | None = None


def joined(where: object, parts: Sequence[Part], names: tuple[str, ...] | None = None) -> LabeledDataset:
    """Return the samples of all parts in their order; an `OwnedDataset` if the parts have `clients`.

    Args:
        where: the source's file or folder, for messages.
        parts: one part or more.
        names: the names of the clients if the parts have their numbers; None if the parts have their names.

    Raises:
        InputError: if the parts do not fit together, a label is not a class number, there are too many classes, a name
            is missing or cannot be shown, or 32-bit floats would round away differences of features.
    """
    first = parts[0]
    named = [part for part in parts if part.columns]
    for part in named[1:]:
        check_columns(part.where, part.columns, named[0].where, named[0].columns)
    for part in parts[1:]:
        if (one := kinds.described(part.inputs)) != (other := kinds.described(first.inputs)):
            raise InputError(
                f"{part.where} has {one} and {first.where} has {other}: save the samples of all clients in the same "
                "form."
            )
    extents = [part.extent for part in parts if part.extent]
    check_told_apart(extents, lambda column: f"column {column} (from 0) of the features in {where}")
    kept = slice(None) if first.kept is None else first.kept
    owners, clients = None, names or ()
    if (given := _column(where, parts, "clients")) is not None:
        owners, clients = (torch.from_numpy(given), names) if names else owners_of(given, where)
    groups, test = (_column(where, parts, name) for name in ("groups", "test"))
    labels, called = _labels(parts)
    common: dict[str, Any] = {
        "class_names": called,
        "test": None if test is None else torch.from_numpy(test.astype(bool))[kept],
        "groups": None if groups is None else groups_of(groups, owners)[kept],
        "vocabulary": _vocabulary(parts),
        "columns": first.columns if len(named) == len(parts) else None,
        "fill": _fill(parts),
        "missing": tuple(sorted(set().union(*(part.missing for part in parts)))),
    }
    inputs = first.inputs if len(parts) == 1 else torch.cat([part.inputs for part in parts])
    if owners is None:
        return LabeledDataset(inputs, labels[kept], **common)
    return OwnedDataset(inputs, labels[kept], owners[kept], clients, **common)


def _fill(parts: Sequence[Part]) -> Tensor | None:
    """Return the values for missing ones, (F,); (M, F) if parts differ, as with clients that convert their tables."""
    fills = [part.fill for part in parts if part.fill is not None]
    if len(fills) < len(parts):
        return None
    if all(torch.equal(fill, fills[0]) for fill in fills):
        return fills[0]
    return torch.cat([fill.expand(len(part.inputs), -1) for fill, part in zip(fills, parts, strict=True)])


def _column(where: object, parts: Sequence[Part], name: str) -> Array | None:
    """Return a column of all parts, (M,); None if no part has it."""
    found = [getattr(part, name) for part in parts]
    if (lacking := sum(each is None for each in found)) == len(found):
        return None
    if lacking:
        raise InputError(f"{where} has an array {name!r} in some files only: save it for all clients, or for none.")
    return np.concatenate([np.asarray(each) for each in found])


def _labels(parts: Sequence[Part]) -> tuple[Tensor, tuple[str, ...] | None]:
    """Return the class numbers of all parts, (M,) int64, and the names of the classes; None without names.

    A class has the same number in all parts: if the parts' lists of names differ, the classes are numbered `in_order`.
    """
    found = [_labels_of(part) for part in parts]
    named = [names for _, names in found if names is not None]
    if not named:
        return torch.cat([numbers for numbers, _ in found]), None
    if len(named) < len(found):
        has, lacks = (next(n for n, each in enumerate(found) if (each[1] is None) is none) for none in (False, True))
        raise InputError(
            f"{parts[has].where} names its classes and {parts[lacks].where} does not: save the array 'classes' in all "
            "files, or in none."
        )
    if len(set(named)) == 1:
        return torch.cat([numbers for numbers, _ in found]), named[0]
    called = in_order(set().union(*named))
    place = {name: number for number, name in enumerate(called)}
    moved = [torch.tensor([place[name] for name in names])[numbers] for numbers, names in found if names]
    return torch.cat(moved), tuple(called)


def _labels_of(part: Part) -> tuple[Tensor, tuple[str, ...] | None]:
    labels = part.labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "SU":
        numbers = torch.from_numpy(class_numbers(labels, str(part.where)))
        return numbers, None if part.classes is None else class_names(part.classes, numbers, part.where)
    names, numbers = numbered(labels)
    if len(names) > MAX_CLASSES:
        raise InputError(
            f"{part.where} has {len(names):,} different labels, and at most {MAX_CLASSES:,} are possible: a "
            "label is the class of a sample, not its name or number."
        )
    return numbers, class_names(names, numbers, part.where)


def _vocabulary(parts: Sequence[Part]) -> Vocabulary | None:
    """Return the common vocabulary of the parts; None if the first part has none."""
    first = parts[0].vocabulary
    if first is None:
        return None
    for part in parts:
        if (own := part.vocabulary) is None or (own.words, own.padding) != (first.words, first.padding):
            raise InputError(
                f"{part.where} has another vocabulary or padding id than {parts[0].where}: save the same arrays "
                "'vocabulary' and 'padding' in all files."
            )
    return replace(first, size=max(part.vocabulary.size for part in parts if part.vocabulary))


def check_columns(where: object, columns: Sequence[str] | None, other: object, others: Sequence[str] | None) -> None:
    """Raise InputError if the features in `where` have other names than those of `other`, or another order.

    Nothing is checked if the names of either are unknown.
    """
    if not columns or not others:
        return
    for place, names in enumerate(zip_longest(columns, others)):
        if names[0] != names[1]:
            has = ["no further column" if name is None else repr(name) for name in names]
            raise InputError(
                f"{where} has {has[0]} as column {place} (from 0) of its features, and {other} has {has[1]}: give both "
                "the same columns in the same order, for tables with ktpfl convert csv TABLE OUT --like FILE."
            )


def owners_of(names: Array, where: object) -> tuple[Tensor, tuple[str, ...]]:
    """Return the owner of each sample, (M,) int64, as an index into the sorted names, and these names.

    `names`, (M,), has the name of each sample's owner. Error messages begin with `where`.
    """
    found, owners = np.unique(names, return_inverse=True)
    if found.dtype.kind == "U":  # numbers need no NFC and stay sorted as numbers
        found, same = np.unique([composed(name) for name in found], return_inverse=True)
        owners = same[owners]
    return torch.from_numpy(owners.astype(np.int64)), client_names(found, where)


def groups_of(groups: Array, owners: Tensor | None) -> Tensor:
    """Return the group of each sample as a number, (M,) int64, from M names or numbers of groups.

    Groups belong to their owner: a patient 7 at each of two hospitals is two patients.
    """
    if groups.dtype.kind == "U":
        groups = np.array([composed(name) for name in groups])
    _, numbers = np.unique(groups, return_inverse=True)
    if owners is not None:
        _, numbers = np.unique(np.stack([owners.numpy(), numbers]), axis=1, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64).reshape(-1))


def class_numbers(labels: Array, where: str) -> Array:
    """Return labels, (M,), as int64, from integers or from floats with integer values.

    Labels such as 3.0 occur in pandas columns with missing values, and in data of FedProx's generators. Raises
    InputError if a label is not an integer from 0 to 9,999. The message names the first such row and `where`.
    """
    with np.errstate(invalid="ignore"):
        wrong = ~((labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
    if wrong.any():
        row = int(wrong.argmax())
        label = labels[row].item()
        shown = f"{label:.12g}" if isinstance(label, float) else label
        raise InputError(
            f"{where} has the label {shown} in row {row} (rows count from 0): labels are class numbers, integers"
            f" from 0 to {MAX_CLASSES - 1}; number the classes."
        )
    return labels.astype(np.int64)


def in_order(names: Iterable[object]) -> list[str]:
    """Return names of classes sorted, without repetition: by value if all names are numbers, otherwise as text."""
    texts = sorted({str(name) for name in names})
    return sorted(texts, key=float) if all(map(NUMBER.fullmatch, texts)) else texts


def numbered(texts: Iterable[object]) -> tuple[list[str], Tensor]:
    """Return the names of classes, in NFC and `in_order`, and the class number of each of the M `texts`, int64."""
    given = [str(text) for text in texts]
    forms = {text: composed(text) for text in given}
    names = in_order(forms.values())
    numbers = {name: number for number, name in enumerate(names)}
    return names, torch.tensor([numbers[forms[text]] for text in given], dtype=torch.int64)


def as_float32(values: Array, where: str) -> Tensor:
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


def extent(values: Array) -> Extent:
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
