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


class Encoding(ABC):
    """An encoding: how a sender compresses values, and which values the receiver decodes."""

    of_probabilities: ClassVar[bool] = False  # whether the sent values must be, and the decoded ones are, distributions
    feeds_back: ClassVar[bool] = False  # whether the error is added to the values that are sent next (error feedback)

    @abstractmethod
    def received(self, values: Tensor) -> tuple[Tensor, int]:
        """Return the decoded values, (B, K) float64, and the number of bytes that are sent.

        `values`, (B, K) on the CPU with B of at least 1, are those of the sender.
        """


class Float16(Encoding):
    """Half precision: 2 B K bytes."""

    def received(self, values: Tensor) -> tuple[Tensor, int]:
        """Round to half precision; a value too large for it becomes the largest."""
        halves = values.clamp(-LARGEST, LARGEST).numpy().astype("<f2")
        return torch.from_numpy(halves.astype(np.float64)), halves.nbytes


class UInt8(Encoding):
    """256 levels: B K + 8 bytes. The error of a value is at most half the distance of adjacent levels."""

    def received(self, values: Tensor) -> tuple[Tensor, int]:
        """Send the smallest value and the distance of adjacent levels, in float32, and the level of each value."""
        grid = np.array([values.min(), (values.max() - values.min()) / 255], "<f4")
        low, step = grid.astype(float)
        steps = ((values.double() - low) / (step or 1.0)).round().clamp(0, 255).numpy().astype("u1")
        return torch.from_numpy(low + step * steps), grid.nbytes + steps.nbytes


class Sign(Encoding):
    """One bit per class: ⌈B K / 8⌉ + 4 bytes.

    Let v be the centered values, b their signs, and P the centering of each sample. The scale s = ‖v‖₁ / ‖Pb‖² gives
    ‖v - sPb‖² = ‖v‖² - ‖v‖₁² / ‖Pb‖², the contraction that error feedback needs.
    """

    feeds_back = True

    def received(self, values: Tensor) -> tuple[Tensor, int]:
        """Send which values are at least their sample's mean, and the scale of least squared error, in float32.

        The decoded values of a sample have mean 0 and take at most two different values.
        """
        above = values >= values.mean(dim=1, keepdim=True)
        signs = 2.0 * above.double() - 1.0
        signs = signs - signs.mean(dim=1, keepdim=True)
        scale = (values * signs).sum() / signs.square().sum().clamp_min(1.0)  # a sum below 1 is 0
        return signs * float(scale.float()), 4 + len(pack(above.flatten()))


@dataclass(frozen=True)
class TopK(Encoding):
    """The k largest probabilities: B k (4 + 1) bytes; 4 + 2 with more than 256 classes."""

    of_probabilities = True

    k: int

    def received(self, values: Tensor) -> tuple[Tensor, int]:
        """Send the k largest probabilities of each sample in float32, and their classes."""
        ordered = values.sort(dim=1, descending=True, stable=True)
        chosen, largest = ordered.indices[:, : self.k], ordered.values[:, : self.k].float().double()
        rest = (1.0 - largest.sum(dim=1, keepdim=True)).clamp_min(0.0) / max(1, values.shape[1] - self.k)
        found = rest.expand(values.shape).scatter(1, chosen, largest)
        name = np.min_scalar_type(values.shape[1] - 1).itemsize
        return found / found.sum(dim=1, keepdim=True), largest.numel() * (4 + name)


def encoding_of(knowledge: Knowledge) -> Encoding | None:
    """Return the encoding that the settings name; None for float32, which sends values unchanged."""
    known: dict[str, Encoding] = {"float16": Float16(), "uint8": UInt8(), "sign": Sign(), "top_k": TopK(knowledge.k)}
    return known.get(knowledge.encoding)


def pack(flags: Tensor) -> bytes:
    """Return flags, (n,) bool, packed as bits in ⌈n / 8⌉ bytes."""
    return np.packbits(flags.cpu().numpy()).tobytes()
