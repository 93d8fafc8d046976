"""Encodings of predictions: the values that the receiver decodes, and the bytes that are sent.

- ``float16``: IEEE half precision.
- ``uint8``: 256 equally spaced levels from the smallest to the largest value, as CFD quantizes (Sattler, Marban,
  Rischke, Samek: Communication-Efficient Federated Distillation, 2020, https://arxiv.org/abs/2012.00632).
- ``sign``: one bit per class, whether the value is at least the sample's mean, and one scale for all (Seide et al.,
  Interspeech 2014). The error is added when the same sample is sent again (`channel`). Without error feedback such a
  method may not converge (Karimireddy, Rebjock, Stich, Jaggi, ICML 2019, https://arxiv.org/abs/1901.09847).
- ``top_k``: the k largest probabilities of a sample with their classes. The other classes share the rest of 1 equally.

A constant added to all logits of a sample does not change its softmax, so the decoded values are correct up to such a
constant.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.settings import Knowledge

LARGEST = float(np.finfo("<f2").max)


Parts = tuple[Tensor, ...]
"""The tensors that are sent, on the CPU."""


class Encoding(ABC):
    """An encoding: what a sender sends of its values, and which values the receiver decodes."""

    of_probabilities: ClassVar[bool] = False  # whether the sent values must be, and the decoded ones are, distributions
    feeds_back: ClassVar[bool] = False  # whether the error is added to the values that are sent next (error feedback)

    @abstractmethod
    def encoded(self, values: Tensor) -> Parts:
        """Return what is sent of values, (B, K) float64 on the CPU with B of at least 1."""

    @abstractmethod
    def decoded(self, parts: Parts, shape: tuple[int, int]) -> Tensor:
        """Return the values that are decoded from what was sent, (B, K) float64; `shape` is (B, K)."""


class Float16(Encoding):
    """Half precision: 2 B K bytes."""

    def encoded(self, values: Tensor) -> Parts:
        """Round to half precision; a value too large for it becomes the largest."""
        return (torch.from_numpy(values.clamp(-LARGEST, LARGEST).numpy().astype("<f2")),)

    def decoded(self, parts: Parts, shape: tuple[int, int]) -> Tensor:
        return parts[0].double()


class UInt8(Encoding):
    """256 levels: B K + 8 bytes. The error of a value is at most half the distance of adjacent levels."""

    def encoded(self, values: Tensor) -> Parts:
        """Send the smallest value and the distance of adjacent levels, in float32, and the level of each value."""
        grid = np.array([values.min(), (values.max() - values.min()) / 255], "<f4")
        low, step = grid.astype(float)
        return torch.from_numpy(grid), ((values.double() - low) / (step or 1.0)).round().clamp(0, 255).to(torch.uint8)

    def decoded(self, parts: Parts, shape: tuple[int, int]) -> Tensor:
        grid, levels = parts
        return grid[0].double() + grid[1].double() * levels


class Sign(Encoding):
    """One bit per class: ⌈B K / 8⌉ + 4 bytes.

    Let v be the centered values, b their signs, and P the centering of each sample. The scale s = ‖v‖₁ / ‖Pb‖² gives
    ‖v - sPb‖² = ‖v‖² - ‖v‖₁² / ‖Pb‖², the contraction that error feedback needs.
    """

    feeds_back = True

    def encoded(self, values: Tensor) -> Parts:
        """Send which values are at least their sample's mean, and the scale of least squared error, in float32."""
        above = values >= values.mean(dim=1, keepdim=True)
        signs = _centered(above)
        scale = (values * signs).sum() / signs.square().sum().clamp_min(1.0)  # a sum below 1 is 0
        return torch.frombuffer(bytearray(pack(above.flatten())), dtype=torch.uint8), scale.float()

    def decoded(self, parts: Parts, shape: tuple[int, int]) -> Tensor:
        """Return values with mean 0 for each sample, which take at most two different values."""
        bits = np.unpackbits(parts[0].numpy(), count=shape[0] * shape[1]).reshape(shape)
        return _centered(torch.from_numpy(bits)) * float(parts[1])


def _centered(above: Tensor) -> Tensor:
    """Return 1 for true and -1 for false flags, (B, K), minus their mean over each sample."""
    signs = 2.0 * above.double() - 1.0
    return signs - signs.mean(dim=1, keepdim=True)


@dataclass(frozen=True)
class TopK(Encoding):
    """The k largest probabilities: B k (4 + 1) bytes; 4 + 2 with more than 256 classes."""

    of_probabilities = True

    k: int

    def encoded(self, values: Tensor) -> Parts:
        """Send the k largest probabilities of each sample in float32, and their classes."""
        ordered = values.sort(dim=1, descending=True, stable=True)
        classes = ordered.indices[:, : self.k].numpy().astype(np.min_scalar_type(values.shape[1] - 1))
        return ordered.values[:, : self.k].float(), torch.from_numpy(classes)

    def decoded(self, parts: Parts, shape: tuple[int, int]) -> Tensor:
        """Return distributions in which the other classes share the rest of 1 equally."""
        largest, chosen = parts[0].double(), parts[1].long()
        rest = (1.0 - largest.sum(dim=1, keepdim=True)).clamp_min(0.0) / max(1, shape[1] - self.k)
        found = rest.expand(shape).scatter(1, chosen, largest)
        return found / found.sum(dim=1, keepdim=True)


def encoding_of(knowledge: Knowledge) -> Encoding | None:
    """Return the encoding that the settings name; None for float32, which sends values unchanged."""
    known: dict[str, Encoding] = {"float16": Float16(), "uint8": UInt8(), "sign": Sign(), "top_k": TopK(knowledge.k)}
    return known.get(knowledge.encoding)


def pack(flags: Tensor) -> bytes:
    """Return flags, (n,) bool, packed as bits in ⌈n / 8⌉ bytes."""
    return np.packbits(flags.cpu().numpy()).tobytes()
