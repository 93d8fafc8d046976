"""Datasets: inputs with labels, and the vocabulary of token ids."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.warnings import Warned

Shape = tuple[int, ...]
"""The shape of one input: (channels, height, width) of images, (channels, length) of series, (features,) of vectors."""


class TokenShape(tuple[int, ...]):
    """The shape of a text in tokens, (length,), with the vocabulary size and the padding that a model needs."""

    vocabulary: int  #: the number of ids, which are 0 to vocabulary - 1
    padding: int | None  #: the id that pads short texts; None if no text is padded

    def __new__(cls, shape: Iterable[int], vocabulary: int = 1, padding: int | None = None) -> Self:
        """Return a shape that equals the tuple of the same numbers."""
        made = super().__new__(cls, shape)
        made.vocabulary, made.padding = vocabulary, padding
        return made


@dataclass(frozen=True)
class Vocabulary:
    """The meaning of token ids."""

    size: int  #: the number of ids in the inputs of a dataset
    padding: int | None = None  #: the id that pads texts to one length; None if no id does
    words: tuple[str, ...] | None = None  #: (size,) the token of each id; None if the tokens are unknown
    #: the number of ids that models see: padding, unknown, and the most frequent ones in the clients' training texts,
    #: which are found for each seed after the partition; see `data.standardization.FrequentTokens`. None: all ids
    frequent: int | None = None
    #: the built-in tokenizer that made the ids, which can encode other texts; None if another tokenizer did
    tokenizer: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class LabeledDataset:
    """Inputs and their labels."""

    #: (M, ...), of one of the `core.kinds`: images in uint8, features of any shape in float32, or tokens in int64
    inputs: Tensor
    labels: Tensor  #: (M,), int64 class numbers from 0
    #: the shape of an input in its source; None if there are several shapes, or the shape is unknown
    native: Shape | None = field(default=None, kw_only=True)
    #: (K,) the source's names of the classes, in the order of the class numbers; None if it has no names
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    #: (M,) bool, whether the source assigns a sample to its test split; None if the source has no splits
    test: Tensor | None = field(default=None, kw_only=True)
    #: the meaning of token ids; None for other kinds of data
    vocabulary: Vocabulary | None = field(default=None, kw_only=True)
    #: (M,) int64, the group of each sample, such as a patient; no split separates samples of a group. None without
    groups: Tensor | None = field(default=None, kw_only=True)
    columns: tuple[str, ...] | None = field(default=None, kw_only=True)  #: (F,) names of the features of vectors
    #: (F,) float32, the features' values where one is missing; (M, F), if the source has several such tables
    fill: Tensor | None = field(default=None, kw_only=True)
    missing: tuple[str, ...] = field(
        default=(), kw_only=True
    )  #: strings that mean a missing value in the source's table
    warnings: tuple[Warned, ...] = field(default=(), kw_only=True)  #: what was found when the samples were read

    def __len__(self) -> int:
        """Return the number of samples M."""
        return len(self.labels)

    def __repr__(self) -> str:
        return f"LabeledDataset(inputs {tuple(self.inputs.shape)}, {self.inputs.dtype})"

    @property
    def kind(self) -> kinds.Kind:
        """The kind of the inputs, which converts them to floats."""
        return kinds.of(self.inputs)

    @property
    def shape(self) -> Shape:
        """The shape of one input; a `TokenShape` if there is a vocabulary."""
        if (known := self.vocabulary) is None:
            return tuple(self.inputs.shape[1:])
        return TokenShape(self.inputs.shape[1:], known.frequent or known.size, known.padding)

    @property
    def classes(self) -> int:
        """The number of classes K: the number of class names or, without names, the highest label plus one."""
        return int(self.labels.max()) + 1 if self.class_names is None else len(self.class_names)

    def take(self, indices: Tensor) -> Self:
        """Return the samples at `indices`, (n,) int64, in that order."""
        test, groups = (None if each is None else each[indices] for each in (self.test, self.groups))
        fill = self.fill if self.fill is None or self.fill.dim() == 1 else self.fill[indices]
        inputs, labels = self.inputs[indices], self.labels[indices]
        return replace(self, inputs=inputs, labels=labels, test=test, groups=groups, fill=fill)

    @cached_property
    def copies(self) -> Tensor:
        """(M,) int64: samples have the same number if their inputs are equal."""
        digests = [blake2b(row, digest_size=16).digest() for row in self.inputs.flatten(1).numpy()]
        return torch.from_numpy(np.unique(digests, return_inverse=True)[1])
