"""Samples that come with their owners: people, cameras, hospitals."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError

MAX_NAME = 100  # signs of a client's name: it stands in tables and pictures


@dataclass(frozen=True, eq=False)
class OwnedDataset(LabelledDataset):
    """Samples, each with the client that it belongs to: what the scheme `natural` keeps.

    Attributes:
        owners: (M,) int64, from 0: a row of `names`.
        names: what the source calls each client, each otherwise, in the order of its numbers.
        test: (M,) bool, which samples the source gives to test on; None where it does not say.

    Raises:
        InputError: if two clients have one name.
    """

    owners: Tensor
    names: tuple[str, ...]
    test: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that tables and pictures can tell the clients apart."""
        if len(set(self.names)) < len(self.names):
            name, times = Counter(self.names).most_common(1)[0]
            raise InputError(
                f"The names of an OwnedDataset have {name!r} {times} times: give each client a name of its own, and "
                "the samples of one client one owner."
            )

    def take(self, indices: Tensor) -> "OwnedDataset":
        """Return the samples at `indices`, (n,) int64, in that order, with their owners."""
        test = None if self.test is None else self.test[indices]
        return OwnedDataset(self.inputs[indices], self.labels[indices], self.owners[indices], self.names, test)


def client_names(names: Iterable[object], where: object) -> tuple[str, ...]:
    """Return the names of clients as text, having checked that a table can show each; `where` they are from.

    Raises:
        InputError: if one is empty, too long or has signs that cannot be shown.
    """
    texts = tuple(map(str, names))
    for text in texts:
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InputError(
                f"{where} has a client named {text[: 2 * MAX_NAME]!r}: names are 1 to {MAX_NAME} signs that can be"
                " shown; rename it."
            )
    return texts
