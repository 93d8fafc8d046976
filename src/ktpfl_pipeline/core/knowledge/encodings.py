"""Encodings of predictions: from numbers to the bytes that are sent, and back to the receiver's numbers.

- ``float16``: IEEE half precision.
- ``uint8``: 256 equal steps between the smallest and the largest value; CFD quantises so (Sattler, Marban, Rischke,
  Samek: Communication-Efficient Federated Distillation, 2020, https://arxiv.org/abs/2012.00632).
- ``sign``: one bit per class, whether it is above the sample's mean, and one scale for all (Seide et al., Interspeech
  2014). The error is added to the next message (`channel`). Without this it would not converge (Karimireddy, Rebjock,
  Stich, Jaggi, ICML 2019, https://arxiv.org/abs/1901.09847).
- ``top_k``: the k largest probabilities of a sample with their classes. The other classes share the rest of 1 equally.

A constant added to all logits of a sample does not change its softmax, so the decoded values are correct up to such a
constant.

Arguments that encodings share: `values`, (B, K) real numbers on the CPU, one row per sample, B at least 1; `buffers`,
the result of `encode` for B = `samples` of K = `classes`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.knowledge.settings import Knowledge

Buffers = tuple[bytes, ...]
LARGEST = float(np.finfo("<f2").max)


class Encoding(ABC):
    """Converts values to bytes and back.

    Attributes:
        of_probabilities: whether values must be distributions, and are when they come back.
        feeds_back: whether what is lost is added to what is sent next.
    """

    of_probabilities: ClassVar[bool] = False
    feeds_back: ClassVar[bool] = False

    @abstractmethod
    def encode(self, values: Tensor) -> Buffers:
        """Return the bytes that travel."""

    @abstractmethod
    def decode(self, buffers: Buffers, samples: int, classes: int) -> Tensor:
        """Return what they say, (B, K) float64."""


class Float16(Encoding):
    """Half precision: 2 B K bytes."""

    def encode(self, values: Tensor) -> Buffers:
        """Return the values rounded to half precision; one too large for it becomes the largest."""
        return (values.clamp(-LARGEST, LARGEST).numpy().astype("<f2").tobytes(),)

    def decode(self, buffers: Buffers, samples: int, classes: int) -> Tensor:
        """Return the rounded values."""
        return _tensor(np.frombuffer(buffers[0], "<f2"), samples)


class UInt8(Encoding):
    """256 steps: B K + 8 bytes. A value moves by half a step at most."""

    def encode(self, values: Tensor) -> Buffers:
        """Return the smallest value and the step, in float32, and the number of steps of each value."""
        grid = np.array([values.min(), (values.max() - values.min()) / 255], "<f4")
        low, step = grid.astype(float)
        steps = ((values.double() - low) / (step or 1.0)).round().clamp(0, 255)
        return grid.tobytes(), steps.numpy().astype("u1").tobytes()

    def decode(self, buffers: Buffers, samples: int, classes: int) -> Tensor:
        """Return the nearest points of the grid."""
        low, step = np.frombuffer(buffers[0], "<f4").astype(float)
        return _tensor(low + step * np.frombuffer(buffers[1], "u1"), samples)


class Sign(Encoding):
    """One bit a class: ⌈B K / 8⌉ + 4 bytes.

    With s = ‖v‖₁ / ‖Pb‖² of the signs b of centred values v, P the centring, ‖v - sPb‖² = ‖v‖² - ‖v‖₁² / ‖Pb‖²: the
    contraction that error feedback needs.
    """

    feeds_back = True

    def encode(self, values: Tensor) -> Buffers:
        """Return the scale of least squared error, in float32, and which values are above their sample's mean."""
        above = values >= values.mean(dim=1, keepdim=True)
        signs = _centred_signs(above)
        scale = (values * signs).sum() / signs.square().sum().clamp_min(1.0)  # at least 1, unless all is equal
        return np.array([scale], "<f4").tobytes(), pack(above.flatten())

    def decode(self, buffers: Buffers, samples: int, classes: int) -> Tensor:
        """Return one of two values for each class of a sample, whose mean is 0."""
        scale = float(np.frombuffer(buffers[0], "<f4")[0])
        return _centred_signs(unpack(buffers[1], samples * classes).view(samples, classes)).mul_(scale)


@dataclass(frozen=True)
class TopK(Encoding):
    """The k largest probabilities: B k (4 + 1) bytes; 4 + 2 with more than 256 classes."""

    of_probabilities = True

    k: int

    def encode(self, values: Tensor) -> Buffers:
        """Return the probabilities in float32, and their classes."""
        largest = values.sort(dim=1, descending=True, stable=True)
        classes = largest.indices[:, : self.k].numpy().astype(_class_type(values.shape[1]))
        return largest.values[:, : self.k].numpy().astype("<f4").tobytes(), classes.tobytes()

    def decode(self, buffers: Buffers, samples: int, classes: int) -> Tensor:
        """Return distributions."""
        largest = _tensor(np.frombuffer(buffers[0], "<f4"), samples)
        chosen = _tensor(np.frombuffer(buffers[1], _class_type(classes)), samples)
        rest = (1.0 - largest.sum(dim=1, keepdim=True)).clamp_min(0.0) / max(1, classes - self.k)
        found = rest.expand(samples, classes).scatter(1, chosen, largest)
        return found / found.sum(dim=1, keepdim=True)


def encoding_of(knowledge: Knowledge) -> Encoding | None:
    """Return the encoding of an experiment; None for float32, in which everything is computed."""
    known: dict[str, Encoding] = {"float16": Float16(), "uint8": UInt8(), "sign": Sign(), "top_k": TopK(knowledge.k)}
    return known.get(knowledge.encoding)


def pack(flags: Tensor) -> bytes:
    """Return flags, (n,) bool, as bits: ⌈n / 8⌉ bytes."""
    return np.packbits(flags.cpu().numpy()).tobytes()


def unpack(buffer: bytes, number: int) -> Tensor:
    """Return what `pack` made of so many flags, (number,) bool."""
    return torch.from_numpy(np.unpackbits(np.frombuffer(buffer, "u1"), count=number)).bool()


def _centred_signs(above: Tensor) -> Tensor:
    signs = 2.0 * above.double() - 1.0
    return signs - signs.mean(dim=1, keepdim=True)


def _class_type(classes: int) -> Any:
    return np.min_scalar_type(classes - 1).newbyteorder("<")


def _tensor(values: Any, samples: int) -> Tensor:
    kind = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64
    return torch.from_numpy(values.astype(kind)).view(samples, -1)
