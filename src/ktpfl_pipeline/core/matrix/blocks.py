"""Knowledge coefficient matrices that are not learned, and the block of a matrix that belongs to a cohort."""

import torch
from torch import Tensor

from ktpfl_pipeline.core.transfer import sent

SHARPNESS = 2
"""The exponent of the overlap o_nm in weights by overlap."""


def uniform(n: int, device: torch.device | None = None) -> Tensor:
    """Return the (n, n) matrix of equal weights 1/n: KT-pFL starts with it, and FedMD keeps it."""
    return torch.full((n, n), 1.0 / n, dtype=torch.float64, device=device)


def random_rows(n: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Return an (n, n) matrix whose rows are drawn uniformly from the simplex, that is, from Dirichlet(1, …, 1)."""
    drawn = torch.empty(n, n, dtype=torch.float64).exponential_(generator=generator)
    return sent(drawn / drawn.sum(dim=1, keepdim=True), device)


def overlap(one: Tensor, other: Tensor) -> Tensor:
    """Return the overlaps o_nm = Σ_k min(one[n, k], other[m, k]), (r, n), of distributions, (r, K) and (n, K)."""
    return torch.minimum(one[:, None], other[None]).sum(dim=2)


def by_overlap(common: Tensor, shares: Tensor) -> Tensor:
    """Return weights in proportion to a_m o_nm², (r, n), whose rows sum to one; a row without any overlap gets a_m.

    `common`, (r, n), are the overlaps o_nm of label distributions, and `shares`, (n,), the shares a_m of the samples.
    """
    weights = shares * common**SHARPNESS
    sums = weights.sum(dim=1, keepdim=True)
    return torch.where(sums > 0, weights / sums.clamp_min(torch.finfo(sums.dtype).tiny), shares)


def block(c: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cohort's block of c, (|S|, |S|), with every row divided by its sum, and these sums, (|S|, 1).

    `rows`, (|S|,), are the cohort's rows and columns of c, ascending. If all clients are in the cohort, c is returned
    unchanged, with ones. A row whose sum is zero becomes 1/|S|; `write_block` then keeps its zeros in c.
    """
    if len(rows) == len(c):
        return c, torch.ones(len(c), 1, dtype=c.dtype, device=c.device)
    part = c[rows[:, None], rows]
    mass = part.sum(dim=1, keepdim=True)
    return torch.where(mass > 0, part / mass, 1.0 / len(rows)), mass


def write_block(c: Tensor, rows: Tensor, part: Tensor, mass: Tensor) -> Tensor:
    """Return c with the cohort's block replaced by ``part * mass``. Other entries and the sums of rows do not change.

    `mass`, (|S|, 1), are the sums that `block` returned. A weight that equals that of `block` keeps its value in c bit
    for bit; dividing and multiplying it by the sum could round it.
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
