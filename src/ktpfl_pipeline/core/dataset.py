"""Inputs with labels, as every part of the project passes them."""

from dataclasses import dataclass, field

from torch import Tensor

from ktpfl_pipeline.core import kinds

Shape = tuple[int, ...]
"""Of one input: (channels, height, width) of an image, (channels, length) of a series, (features,) of a vector."""


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """Inputs and their labels.

    Attributes:
        inputs: (M, ...), of one of the kinds in `core.kinds`: images in uint8, or features of any shape in float32.
        labels: (M,), int64 class numbers from 0.
        native: shape of an input as its source has it; None where they are of many, or it is not known.
    """

    inputs: Tensor
    labels: Tensor
    native: Shape | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        """Return the number of samples M."""
        return len(self.labels)

    @property
    def kind(self) -> kinds.Kind:
        """What the inputs are, and how they become floats."""
        return kinds.of(self.inputs)

    @property
    def shape(self) -> Shape:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def take(self, indices: Tensor) -> "LabelledDataset":
        """Return the samples at `indices`, (n,) int64, in that order."""
        return LabelledDataset(self.inputs[indices], self.labels[indices])
