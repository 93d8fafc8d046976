"""The kinds of data: the form of their inputs, and the conversion of inputs to the numbers that models take.

`KINDS` is the registry. Each kind has its own dtype, in which sources return inputs and in which inputs are stored, so
`of` finds the kind of any tensor of inputs. A new kind is one class and one entry in `KINDS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, plural


class Kind(ABC):
    """One kind of data."""

    name: ClassVar[str]  # the plural noun for inputs of this kind in messages
    dtype: ClassVar[torch.dtype]  # the dtype of inputs as sources return them
    form: ClassVar[str]  # the shapes and the dtype that inputs must have, for messages
    # how many dimensions inputs, (M, ...), may have
    dimensions: ClassVar[range] = range(2, 65)  # torch has at most 64
    # whether an input is (channels, height, width) of pixels from 0 to 255, so that it can be resized, augmented,
    # rotated and kept channels-last
    pixels: ClassVar[bool] = False
    # whether inputs are brought to mean 0 and standard deviation 1 before training, by the training samples of all
    # clients
    standardized: ClassVar[bool] = False

    def allows(self, inputs: Tensor) -> bool:
        """Return whether inputs, (M, ...), have the dtype and the number of dimensions that this kind needs."""
        return inputs.dtype == self.dtype and inputs.dim() in self.dimensions

    @abstractmethod
    def to_float(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return inputs, (b, ...), as a model in `dtype` takes them. Features must be standardized before.

        A kind whose inputs the model embeds, such as tokens, returns them unchanged.
        """

    def transported(self, inputs: Tensor) -> int:
        """Return the bytes that one number of `inputs`, (M, ...), takes when it is sent to a client."""
        return inputs.element_size()

    def blank(self, shape: Sequence[int], number: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return `number` zero inputs of the given shape, (number, *shape), as a model in `dtype` takes them."""
        return self.to_float(torch.zeros(number, *shape, dtype=self.dtype), dtype).zero_()

    def in_words(self, shape: Sequence[int]) -> str:
        """Return the shape of an input for reports: ``28 × 28 gray``, ``series of 9 × 128``, ``vectors of 5``."""
        if len(shape) < 3:
            return f"{'series' if len(shape) == 2 else 'vectors'} of {' × '.join(map(str, shape))}"
        colors = {1: "gray", 3: "RGB"}.get(shape[0], f"in {shape[0]} channels")
        return f"{' × '.join(map(str, shape[1:]))} {colors}"

    @abstractmethod
    def drawn(self, shape: Sequence[int], number: int) -> Tensor:
        """Return `number` random inputs, (number, *shape), as a model in float32 takes them; always the same ones."""


class Images(Kind):
    """Images of 8 bits: (channels, height, width), uint8."""

    name, dtype, pixels = "images", torch.uint8, True
    form = "uint8, (M, channels, height, width)"
    dimensions = range(4, 5)

    def to_float(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return pixels as numbers from -1 to 1."""
        return inputs.to(dtype, copy=True).div_(127.5).sub_(1.0).contiguous()

    def drawn(self, shape: Sequence[int], number: int) -> Tensor:
        return self.to_float(torch.randint(0, 256, (number, *shape), dtype=torch.uint8, generator=_generator()))


class Features(Kind):
    """Numbers without a known range: vectors, series, or grids of any channels; float32."""

    name, dtype, standardized = "features", torch.float32, True
    form = "float32, (M, ...)"

    def to_float(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        return inputs.to(dtype)

    def drawn(self, shape: Sequence[int], number: int) -> Tensor:
        """Return features of mean 0 and standard deviation 1."""
        return torch.randn(number, *shape, generator=_generator())


class Tokens(Kind):
    """Texts as ids of a vocabulary, which models embed: (length,), int64."""

    name, dtype = "tokens", torch.int64
    form = "int64, (M, length)"
    dimensions = range(2, 3)

    def to_float(self, inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return ids unchanged: the first layer of a model looks up their embeddings."""
        return inputs

    def in_words(self, shape: Sequence[int]) -> str:
        return f"texts of {plural(shape[0], 'token')}"

    def drawn(self, shape: Sequence[int], number: int) -> Tensor:
        """Return texts of any ids of the vocabulary of a `TokenShape`; without a vocabulary, of id 0."""
        highest = getattr(shape, "vocabulary", 1)
        return torch.randint(0, highest, (number, *shape), generator=_generator())

    def transported(self, inputs: Tensor) -> int:
        """Return the bytes of the smallest unsigned integer that holds every id: 1, 2 or 4."""
        highest = int(inputs.max()) if inputs.numel() else 0
        return 1 if highest < 2**8 else 2 if highest < 2**16 else 4


IMAGES, FEATURES, TOKENS = Images(), Features(), Tokens()
KINDS: dict[str, Kind] = {kind.name: kind for kind in (IMAGES, FEATURES, TOKENS)}
"""All kinds by name."""


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def of(inputs: Tensor) -> Kind:
    """Return the kind of inputs, (M, ...); InputError if no kind has their dtype."""
    dtype = torch.float32 if inputs.is_floating_point() else inputs.dtype  # callers in Python may pass float64
    for kind in KINDS.values():
        if kind.dtype == dtype:
            return kind
    raise InputError(f"inputs are {inputs.dtype}, which is the dtype of no kind of data: {forms()}.")


def forms() -> str:
    """Return the required form of each kind in words: ``images must be uint8, (M, ...), and features ...``."""
    first, *others = KINDS.values()
    return ", and ".join([f"{first.name} must be {first.form}", *(f"{kind.name} {kind.form}" for kind in others)])


def described(inputs: Tensor) -> str:
    """Return a description of inputs, (M, ...), for messages, such as ``images of shape (3, 64, 64)``."""
    return f"{of(inputs).name} of shape {tuple(inputs.shape[1:])}"
