"""The matrix at its start, and the part of it that belongs to a cohort."""

import torch
from torch import Tensor


def uniform(n: int, device: torch.device | None = None) -> Tensor:
    """Return the (n, n) matrix of equal weights 1/n, the start of KT-pFL and all of FedMD."""
    return torch.full((n, n), 1.0 / n, dtype=torch.float64, device=device)


def block(c: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cohort's block of c as rows that sum to one, (|S|, |S|), and each row's mass there before, (|S|, 1).

    `rows`, (|S|,), are the cohort's rows and columns of c, ascending; with everyone present c and ones are returned,
    bit for bit. A row that gives its cohort no mass has nothing to renormalize: it mixes the cohort equally, and c
    keeps its zeros.
    """
    if len(rows) == len(c):
        return c, torch.ones(len(c), 1, dtype=c.dtype, device=c.device)
    part = c[rows[:, None], rows]
    mass = part.sum(dim=1, keepdim=True)
    return torch.where(mass > 0, part / mass, 1.0 / len(rows)), mass


def write_block(c: Tensor, rows: Tensor, part: Tensor, mass: Tensor) -> Tensor:
    """Return c with the cohort's block replaced by ``part * mass``; nothing else changes, and row sums are kept.

    A weight of the block that did not change keeps its bits, which division by the mass and back might not.
    """
    result, (before, _) = c.clone(), block(c, rows)
    kept = c[rows[:, None], rows]
    result[rows[:, None], rows] = torch.where(part == before, kept, part * mass)
    return result


def among(part: Tensor, rows: Tensor, n: int) -> Tensor:
    """Return the (n, n) matrix in which the cohort's block is `part` and every other client learns only from itself."""
    c = torch.eye(n, dtype=part.dtype, device=part.device)
    c[rows[:, None], rows] = part
    return c
