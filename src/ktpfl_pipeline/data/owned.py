"""Samples whose source names their owners, such as people, cameras or hospitals, and names of clients and classes."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural

MAX_NAME = 100  # characters in the name of a client or a class, because tables and figures show it


@dataclass(frozen=True, eq=False)
class OwnedDataset(LabeledDataset):
    """Labeled samples with the client that owns each sample. The partition scheme `natural` uses these clients.

    Raises InputError if two clients have the same name.

    Attributes:
        owners: (M,) int64, the owner of each sample as an index into `names`.
        names: the names of the clients.
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
    """Return the name of a class or a client in the Unicode form NFC, so that equal names compare equal.

    macOS writes ö in file names as two characters, and other systems write it as one. Paths are not converted.
    """
    return unicodedata.normalize("NFC", str(name))


def client_names(names: Iterable[object], where: object) -> tuple[str, ...]:
    """Return the names of clients as strings. Raises InputError, which names `where`, if a name cannot be shown."""
    return _shown(names, "client", where)


def class_names(names: Iterable[object], labels: Tensor, where: object) -> tuple[str, ...]:
    """Return the names of classes, (K,), as strings, in the order of the class numbers.

    Raises InputError, which names `where`, if a label in `labels`, (M,), has no name, if two classes have the same
    name, or if a name cannot be shown.
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
    """Return names as strings in NFC. Raises InputError if a name is empty, too long or not printable."""
    texts = tuple(map(composed, names))
    for text in texts:
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InputError(
                f"{where} has a {what} named {text[: 2 * MAX_NAME]!r}: names are 1 to {MAX_NAME} printable characters;"
                " rename it."
            )
    return texts
