"""Quantities fitted to the clients' training samples before training: the scale of features, the vocabulary of texts.

Features are standardized to mean 0 and standard deviation 1, channel by channel. Mean and deviation are computed from
the training samples of all clients together, never from test samples, and also scale the public features. A real
federation would share them, or their sums, once before the first round. Images need no scaling, because their range is
known. Texts keep the tokens that are most frequent in the training samples of all clients together; a real federation
would agree on a published tokenizer, or on the words of its public texts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Standardization:
    """Mean and standard deviation of each channel of a series or an image, or of each feature of a vector.

    Both are (C,) float64; the deviation is 1 where all values are equal.
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, features: Tensor, training: Iterable[Tensor]) -> "Standardization":
        """Return that of features, (M, C, ...) float32, from the indices of each client's `training` samples."""
        own = features[torch.cat(list(training))].numpy()  # NumPy sums alike on any number of threads
        along = (0, *range(2, own.ndim))
        mean = own.mean(axis=along, dtype=np.float64, keepdims=True)
        std = np.sqrt(np.square(own - mean).mean(axis=along))
        return cls(torch.from_numpy(mean.reshape(-1)), torch.from_numpy(np.where(std > 0, std, 1.0)))

    def plain(self) -> dict[str, Any]:
        """Return the numbers as lists; what `of_plain` takes."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def __call__(self, features: Tensor) -> Tensor:
        """Return features, (M, C, ...), standardized, float32."""
        mean, std = (each.view(-1, *[1] * (features.ndim - 2)) for each in (self.mean, self.std))
        return ((features - mean) / std).float()


PADDING, UNKNOWN = 0, 1
"""The ids that every built-in tokenizer gives to the filling of short texts and to tokens outside the vocabulary."""


@dataclass(frozen=True, eq=False)
class FrequentTokens:
    """The tokens that models see: those most frequent in the training texts; all others become `UNKNOWN`.

    Of the source's `size` ids, (n,) int64 are `kept`, the most frequent first; models see them as ids 2 to n + 1.
    """

    kept: Tensor
    size: int

    @classmethod
    def of(cls, tokens: Tensor, training: Iterable[Tensor], size: int, frequent: int) -> "FrequentTokens":
        """Return the most frequent tokens of the training texts; of equally frequent ones, the lower ids first.

        `tokens`, (M, L) int64, are of `size` ids, and `training` has the indices of each client's training samples.
        Models see `frequent` ids, `PADDING` and `UNKNOWN` among them.
        """
        counts = tokens[torch.cat(list(training))].flatten().bincount(minlength=size).numpy()
        counts[: UNKNOWN + 1] = 0
        order = np.argsort(-counts, kind="stable")[: max(frequent - 2, 0)]
        return cls(torch.from_numpy(order[counts[order] > 0].copy()), size)

    def plain(self) -> dict[str, Any]:
        """Return the numbers as lists; what `of_plain` takes."""
        return {"kept": self.kept.tolist(), "size": self.size}

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return tokens, (M, L), as models see them."""
        ids = torch.full((self.size,), UNKNOWN)
        ids[PADDING] = PADDING
        ids[self.kept] = torch.arange(len(self.kept)) + 2
        return ids[tokens]


Fitted = Standardization | FrequentTokens


def of_plain(values: Mapping[str, Any]) -> Fitted:
    """Return what `plain` was called on."""
    if "kept" in values:
        return FrequentTokens(torch.tensor(values["kept"], dtype=torch.int64), values["size"])
    return Standardization(*(torch.tensor(values[name], dtype=torch.float64) for name in ("mean", "std")))
