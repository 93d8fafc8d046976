"""Features brought to mean 0 and standard deviation 1, channel by channel, by what the clients train on.

The two numbers of each channel are made from the training samples of all clients together, never from what they are
tested on; public features are brought to the same scale. A real federation would share them, or their sums, once before
the first round. Images need none of it: their range is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Mean and standard deviation of each channel of a series or an image, or of each feature of a vector.

    Attributes:
        mean: (C,) float64.
        std: (C,) float64; 1 where all values are equal.
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, features: Tensor, training: Iterable[Tensor]) -> "Standardisation":
        """Return that of the samples that somebody trains on.

        Args:
            features: (M, C, ...) float32.
            training: indices of each client's training samples.
        """
        own = features[torch.cat(list(training))].numpy()  # NumPy sums alike on any number of threads
        along = (0, *range(2, own.ndim))
        mean = own.mean(axis=along, dtype=np.float64, keepdims=True)
        std = np.sqrt(np.square(own - mean).mean(axis=along))
        return cls(torch.from_numpy(mean.reshape(-1)), torch.from_numpy(np.where(std > 0, std, 1.0)))

    def __call__(self, features: Tensor) -> Tensor:
        """Return features, (M, C, ...), standardised, float32."""
        mean, std = (each.view(-1, *[1] * (features.ndim - 2)) for each in (self.mean, self.std))
        return ((features - mean) / std).float()
