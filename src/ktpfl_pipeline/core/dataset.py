"""Images with labels, as every part of the project passes them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """Images and their labels.

    Attributes:
        images: (M, channels, height, width), uint8.
        labels: (M,), int64 class numbers from 0.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of images M."""
        return len(self.labels)

    def take(self, indices: Tensor) -> "LabelledDataset":
        """Return the samples at `indices`, (n,) int64, in that order."""
        return LabelledDataset(self.images[indices], self.labels[indices])
