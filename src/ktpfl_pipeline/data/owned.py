"""Samples that come with their owners: people, cameras, hospitals."""

from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabelledDataset


@dataclass(frozen=True, eq=False)
class OwnedDataset(LabelledDataset):
    """Samples, each with the client that it belongs to: what the scheme `natural` keeps.

    Attributes:
        owners: (M,) int64, from 0: a row of `names`.
        names: what the source calls each client, in the order of its numbers.
        test: (M,) bool, which samples the source gives to test on; None where it does not say.
    """

    owners: Tensor
    names: tuple[str, ...]
    test: Tensor | None = None

    def take(self, indices: Tensor) -> "OwnedDataset":
        """Return the samples at `indices`, (n,) int64, in that order, with their owners."""
        test = None if self.test is None else self.test[indices]
        return OwnedDataset(self.inputs[indices], self.labels[indices], self.owners[indices], self.names, test)
