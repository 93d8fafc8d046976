"""Summaries of a coefficient matrix that changes from round to round, for reports."""

from collections.abc import Sequence

import torch
from torch import Tensor

ALIKE = 0.7
"""The cosine similarity of label distributions above which two clients count as alike.

Two clients with two equally frequent classes each have a similarity near 0.5 if they share one class, and near 1 if
they share both. The threshold is between these values.
"""
KEPT = 5
"""The largest number of rounds of a run whose matrices are stored."""


def snapshots(coefficients: Tensor) -> dict[int, list[list[float]]]:
    """Return the matrices of at most `KEPT` rounds, by round, from `coefficients`, (rounds, N, N).

    The rounds include the first and the last, and are evenly spaced on a logarithmic scale.
    """
    rounds = len(coefficients)
    chosen = sorted({round(rounds ** (step / (KEPT - 1))) for step in range(KEPT)})
    return {t: coefficients[t - 1].tolist() for t in chosen}


def mixes(c: Tensor) -> bool:
    """Return whether all rows are mixtures: non-negative, with the sum 1. The rows of APPLE's p may not be mixtures."""
    return bool((c >= 0).all()) and bool(((c.double().sum(dim=-1) - 1.0).abs() < 1e-6).all())


def trust(c: Tensor, adversaries: Sequence[int]) -> float:
    """Return the mean weight that benign clients give to an adversary, in units of 1/N: 1 means equal weights.

    Args:
        c: (N, N), coefficients whose rows sum to 1.
        adversaries: the row numbers of the adversaries, at least one and not all rows.
    """
    adversary = torch.zeros(len(c), dtype=torch.bool)
    adversary[list(adversaries)] = True
    return float(c.double()[~adversary][:, adversary].mean() * len(c))


def attention(coefficients: Tensor, similarity: Tensor, adversaries: Sequence[int] = ()) -> dict[str, list[float]]:
    """Return the weight on ``own``, ``alike`` and ``others``, each by round: means over the rows of benign clients.

    Args:
        coefficients: (rounds, N, N), matrices whose rows sum to 1.
        similarity: (N, N) cosine similarity of the clients' label distributions.
        adversaries: the row numbers of the adversaries, which are excluded from the means.
    """
    c, benign = coefficients.double(), torch.tensor([n not in adversaries for n in range(len(similarity))])
    own = torch.eye(c.shape[1], dtype=torch.bool)
    groups = {"own": own, "alike": (similarity > ALIKE) & ~own, "others": (similarity <= ALIKE) & ~own}
    return {name: (c * group).sum(dim=2)[:, benign].mean(dim=1).tolist() for name, group in groups.items()}
