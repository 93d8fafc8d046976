"""Pooling of features of different widths to a common dimension: scaled averages of neighbors."""

import math

import torch.nn.functional as F
from torch import Tensor, nn


def pooled(features: Tensor, dimension: int) -> Tensor:
    """Return features, (b, f), pooled to F = `dimension` numbers, (b, F): averages of neighbors, times √(f/F).

    With F = f the result equals the features bit for bit. The norm does not change if averaged neighbors are equal, or
    if F is a multiple of f, so that each feature is repeated.
    """
    scale = math.sqrt(features.shape[1] / dimension)
    return F.adaptive_avg_pool1d(features, dimension) * scale


class Pool(nn.Module):
    """`pooled` as a layer."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def forward(self, features: Tensor) -> Tensor:
        """Return the features, (b, f), pooled to (b, F)."""
        return pooled(features, self.dimension)
