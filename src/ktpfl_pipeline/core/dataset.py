"""Inputs with labels, as every part of the project passes them."""

from dataclasses import dataclass, field, replace
from typing import Self

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
        class_names: (K,) what the source calls each class, in the order of the class numbers; None where it has no
            names.
        test: (M,) bool, the samples that the source gives to test on; None where it gives no split.
    """

    inputs: Tensor
    labels: Tensor
    native: Shape | None = field(default=None, kw_only=True)
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    test: Tensor | None = field(default=None, kw_only=True)

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

    @property
    def classes(self) -> int:
        """The number of classes K: of their names, or up to the highest label where the source has no names."""
        return int(self.labels.max()) + 1 if self.class_names is None else len(self.class_names)

    def take(self, indices: Tensor) -> Self:
        """Return the samples at `indices`, (n,) int64, in that order."""
        test = None if self.test is None else self.test[indices]
        return replace(self, inputs=self.inputs[indices], labels=self.labels[indices], test=test)
