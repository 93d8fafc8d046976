"""Samples that come with their owners: people, cameras, hospitals."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural

MAX_NAME = 100  # characters of the name of a client or a class, which is shown in tables and pictures


@dataclass(frozen=True, eq=False)
class OwnedDataset(LabeledDataset):
    """Samples, each with the client that it belongs to: what the scheme `natural` keeps.

    Attributes:
        owners: (M,) int64, from 0: a row of `names`.
        names: what the source calls each client, in the order of its numbers; two with one name are an `InputError`.
    """

    owners: Tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            name, times = Counter(self.names).most_common(1)[0]
            raise InputError(
                f"The names of an OwnedDataset have {name!r} {times} times: give each client a name of its own, and "
                "the samples of one client one owner."
            )

    def take(self, indices: Tensor) -> Self:
        """Return the samples at `indices`, (n,) int64, in that order, with their owners."""
        return replace(super().take(indices), owners=self.owners[indices])


def composed(name: object) -> str:
    """Return a name in the one form (NFC) in which names are compared: macOS writes ö as two characters, others as one.

    Names are those of classes and clients. Paths stay as they are.
    """
    return unicodedata.normalize("NFC", str(name))


def client_names(names: Iterable[object], where: object) -> tuple[str, ...]:
    """Return the names of clients as text, having checked that a table can show each; `where` they are from."""
    return _shown(names, "client", where)


def owners_of(names: Sequence[object], where: object) -> tuple[Tensor, tuple[str, ...]]:
    """Return the owner of each sample, (M,) int64, from its name, and the sorted names; `where` they are from."""
    found, owners = np.unique(np.asarray(names), return_inverse=True)
    if found.dtype.kind == "U":  # numbers keep their order
        found, same = np.unique([composed(name) for name in found], return_inverse=True)
        owners = same[owners]
    return torch.from_numpy(owners.astype(np.int64)), client_names(found, where)


def class_names(names: Iterable[object], labels: Tensor, where: object) -> tuple[str, ...]:
    """Return the names of classes as text, having checked that each label, (M,), has one of its own.

    The `names`, (K,), are in the order of the class numbers; messages say `where` they are from.
    """
    texts = _shown(names, "class", where)
    if len(texts) <= (highest := int(labels.max())):
        raise InputError(
            f"{where} has {plural(len(texts), 'class name')} and labels up to {highest:,}: give a name to each class,"
            " from 0 on."
        )
    if len(set(texts)) < len(texts):
        name = Counter(texts).most_common(1)[0][0]
        raise InputError(f"{where} has two classes named {name!r}: give each class a name of its own.")
    return texts


def _shown(names: Iterable[object], what: str, where: object) -> tuple[str, ...]:
    """Return names as text in one form, having checked that a table can show each."""
    texts = tuple(map(composed, names))
    for text in texts:
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InputError(
                f"{where} has a {what} named {text[: 2 * MAX_NAME]!r}: names are 1 to {MAX_NAME} printable characters;"
                " rename it."
            )
    return texts
