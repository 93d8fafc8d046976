"""Features of different widths in a common dimension: averages of neighbors, scaled."""

import math

import torch.nn.functional as F
from torch import Tensor, nn


def pooled(features: Tensor, dimension: int) -> Tensor:
    """Return features, (b, f), in `dimension` numbers, (b, F): averages of neighbors, times √(f/F).

    With F = f the result equals the features bit for bit. The norm is kept if averaged neighbors are equal, or if F is
    a multiple of f, where features are repeated.
    """
    scale = math.sqrt(features.shape[1] / dimension)
    return F.adaptive_avg_pool1d(features, dimension) * scale


class Pool(nn.Module):
    """`pooled` as a layer."""

    def __init__(self, dimension: int) -> None:
        """Pool to `dimension` numbers."""
        super().__init__()
        self.dimension = dimension

    def forward(self, features: Tensor) -> Tensor:
        """Return the features, (b, f), in F numbers, (b, F)."""
        return pooled(features, self.dimension)
