"""Quantities that are fitted to the clients' training samples before training: feature scale and text vocabulary.

Features are standardized to mean 0 and standard deviation 1 per channel. The mean and the standard deviation are
computed from the training samples of all clients, never from validation or test samples. Public features are
standardized with the same values. A real federation would share these values, or sums of them, before the first round.
Images are not scaled here, because their range is known.

Texts keep the tokens that are most frequent in the training samples of all clients. A real federation would agree on a
published tokenizer, or on the words of its public texts.
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

    Attributes:
        mean: (C,) float64.
        std: (C,) float64; 1 for a channel whose values are all equal.
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, features: Tensor, training: Iterable[Tensor]) -> "Standardization":
        """Return the mean and standard deviation of `features`, (M, C, ...) float32, over all training samples.

        `training` has the indices of each client's training samples.
        """
        own = features[torch.cat(list(training))].numpy()  # NumPy's sums do not depend on the number of threads
        along = (0, *range(2, own.ndim))
        mean = own.mean(axis=along, dtype=np.float64, keepdims=True)
        std = np.sqrt(np.square(own - mean).mean(axis=along))
        return cls(torch.from_numpy(mean.reshape(-1)), torch.from_numpy(np.where(std > 0, std, 1.0)))

    def plain(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def __call__(self, features: Tensor) -> Tensor:
        """Return the standardized features, (M, C, ...) float32."""
        mean, std = (each.view(-1, *[1] * (features.ndim - 2)) for each in (self.mean, self.std))
        return ((features - mean) / std).float()


PADDING, UNKNOWN = 0, 1
"""Ids of every built-in tokenizer: for the padding of short texts, and for tokens outside the vocabulary."""


@dataclass(frozen=True, eq=False)
class FrequentTokens:
    """The most frequent tokens of the training texts. Models get all other tokens as `UNKNOWN`.

    Attributes:
        kept: (n,) int64, the source's ids of these tokens, the most frequent first. Models get them as ids 2 to n + 1.
        size: the number of ids in the source.
    """

    kept: Tensor
    size: int

    @classmethod
    def of(cls, tokens: Tensor, training: Iterable[Tensor], size: int, frequent: int) -> "FrequentTokens":
        """Return the most frequent tokens of the training texts. Of equally frequent tokens, lower ids come first.

        Args:
            tokens: (M, L) int64, the ids of all texts.
            training: the indices of each client's training samples.
            size: the number of ids in the source.
            frequent: the largest number of ids that models get, including `PADDING` and `UNKNOWN`.
        """
        counts = tokens[torch.cat(list(training))].flatten().bincount(minlength=size).numpy()
        counts[: UNKNOWN + 1] = 0
        order = np.argsort(-counts, kind="stable")[: max(frequent - 2, 0)]
        return cls(torch.from_numpy(order[counts[order] > 0].copy()), size)

    def plain(self) -> dict[str, Any]:
        return {"kept": self.kept.tolist(), "size": self.size}

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return tokens of the source, (M, L), as ids for models."""
        ids = torch.full((self.size,), UNKNOWN)
        ids[PADDING] = PADDING
        ids[self.kept] = torch.arange(len(self.kept)) + 2
        return ids[tokens]


Fitted = Standardization | FrequentTokens


def of_plain(values: Mapping[str, Any]) -> Fitted:
    if "kept" in values:
        return FrequentTokens(torch.tensor(values["kept"], dtype=torch.int64), values["size"])
    return Standardization(*(torch.tensor(values[name], dtype=torch.float64) for name in ("mean", "std")))
