"""Inputs with labels, as every part of the project passes them."""

from dataclasses import dataclass

from torch import Tensor

Shape = tuple[int, ...]
"""Of one input: (channels, height, width) of an image, (channels, length) of a series, (features,) of a vector."""


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """Inputs and their labels.

    Attributes:
        inputs: (M, *shape): images in uint8, or features of any shape in float32.
        labels: (M,), int64 class numbers from 0.
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of samples M."""
        return len(self.labels)

    @property
    def shape(self) -> Shape:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def take(self, indices: Tensor) -> "LabelledDataset":
        """Return the samples at `indices`, (n,) int64, in that order."""
        return LabelledDataset(self.inputs[indices], self.labels[indices])
