"""What a report keeps of a coefficient matrix that changes from round to round."""

from collections.abc import Sequence

import torch
from torch import Tensor

ALIKE = 0.7
"""Clients whose label distributions have a cosine similarity above this count as alike.

Two clients that share one of two equally frequent classes have a similarity of 0.5, with counts that differ a little
around it; two that share both have one near 1. The threshold lies between.
"""
KEPT = 5
"""Rounds of a run whose matrices are kept."""


def snapshots(coefficients: Tensor) -> dict[int, list[list[float]]]:
    """Return the matrix, (rounds, N, N), after `KEPT` rounds at most, the first and the last among them.

    They are spread evenly on a logarithmic scale.
    """
    rounds = len(coefficients)
    chosen = sorted({round(rounds ** (step / (KEPT - 1))) for step in range(KEPT)})
    return {t: coefficients[t - 1].tolist() for t in chosen}


def mixes(c: Tensor) -> bool:
    """Return whether all rows are mixtures: not below zero, and with the sum one. APPLE's p need not be."""
    return bool((c >= 0).all()) and bool(((c.double().sum(dim=-1) - 1.0).abs() < 1e-6).all())


def trust(c: Tensor, adversaries: Sequence[int]) -> float:
    """Return the mean weight that benign rows give to an adversary, in units of 1/N: 1 is equal weights, 0 is none.

    Args:
        c: (N, N), rows that sum to one.
        adversaries: their rows, at least one and not all.
    """
    adversary = torch.zeros(len(c), dtype=torch.bool)
    adversary[list(adversaries)] = True
    return float(c.double()[~adversary][:, adversary].mean() * len(c))


def attention(coefficients: Tensor, similarity: Tensor, adversaries: Sequence[int] = ()) -> dict[str, list[float]]:
    """Return on whom the rows put their weight, by round: ``own``, ``alike`` and ``others``, means over the rows.

    Args:
        coefficients: (rounds, N, N), rows that sum to one.
        similarity: (N, N) cosine similarity of the clients' label distributions.
        adversaries: rows that are left out of the means.
    """
    c, benign = coefficients.double(), torch.tensor([n not in adversaries for n in range(len(similarity))])
    own = torch.eye(c.shape[1], dtype=torch.bool)
    groups = {"own": own, "alike": (similarity > ALIKE) & ~own, "others": (similarity <= ALIKE) & ~own}
    return {name: (c * group).sum(dim=2)[:, benign].mean(dim=1).tolist() for name, group in groups.items()}
