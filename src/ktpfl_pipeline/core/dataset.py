"""Inputs with labels, as every part of the project passes them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from ktpfl_pipeline.core import kinds

Shape = tuple[int, ...]
"""Of one input: (channels, height, width) of an image, (channels, length) of a series, (features,) of a vector."""


class TokenShape(tuple[int, ...]):
    """Shape of one text in tokens, (length,), with what a model must know to embed the tokens."""

    vocabulary: int  #: the number of ids, which are 0 to vocabulary - 1
    padding: int | None  #: the id that fills a text up to the length; None where no text is filled up

    def __new__(cls, shape: Iterable[int], vocabulary: int = 1, padding: int | None = None) -> Self:
        """Return a shape that equals the tuple of the same numbers."""
        made = super().__new__(cls, shape)
        made.vocabulary, made.padding = vocabulary, padding
        return made


@dataclass(frozen=True)
class Vocabulary:
    """The meaning of token ids."""

    size: int  #: the number of ids in the inputs of a dataset
    padding: int | None = None  #: the id that fills texts up to one length; None where no id does
    words: tuple[str, ...] | None = None  #: (size,) the token of each id; None where they are not known
    #: how many ids models see: the most frequent ones in the clients' training texts, found for each seed when the
    #: clients are known; see `data.standardization.FrequentTokens`. None: all ids.
    frequent: int | None = None
    #: which built-in tokenizer made it, for other texts of the same vocabulary; None where another one did
    tokenizer: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class LabeledDataset:
    """Inputs and their labels."""

    #: (M, ...), of one of the `core.kinds`: images in uint8, features of any shape in float32, or tokens in int64
    inputs: Tensor
    labels: Tensor  #: (M,), int64 class numbers from 0
    #: shape of an input as its source has it; None where they are of many, or it is not known
    native: Shape | None = field(default=None, kw_only=True)
    #: (K,) what the source calls each class, in the order of the class numbers; None where it has no names
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    #: (M,) bool, the samples that the source gives to test on; None where it gives no split
    test: Tensor | None = field(default=None, kw_only=True)
    #: what the ids of tokens mean; None for other kinds
    vocabulary: Vocabulary | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        """Return the number of samples M."""
        return len(self.labels)

    @property
    def kind(self) -> kinds.Kind:
        """The kind of the inputs, which converts them to floats."""
        return kinds.of(self.inputs)

    @property
    def shape(self) -> Shape:
        """Shape of one input; a `TokenShape` where the vocabulary is known."""
        if (known := self.vocabulary) is None:
            return tuple(self.inputs.shape[1:])
        return TokenShape(self.inputs.shape[1:], known.frequent or known.size, known.padding)

    @property
    def classes(self) -> int:
        """The number of classes K: of their names, or up to the highest label where the source has no names."""
        return int(self.labels.max()) + 1 if self.class_names is None else len(self.class_names)

    def take(self, indices: Tensor) -> Self:
        """Return the samples at `indices`, (n,) int64, in that order."""
        test = None if self.test is None else self.test[indices]
        return replace(self, inputs=self.inputs[indices], labels=self.labels[indices], test=test)
