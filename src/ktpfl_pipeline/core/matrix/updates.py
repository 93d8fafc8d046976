"""The updates of the knowledge coefficient matrix.

Each update is called as ``update(objective, c, step, steps)`` and returns the new matrix, (N, N).
Arguments that all updates share:

    objective: the function to minimize, row by row.
    c: (N, N), the matrix before the update.
    step: the step size η₃, one for all rows or (N, 1).
    steps: the number of steps.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.matrix.objectives import Objective, SquaredDistance

ENOUGH, HALVINGS = 1e-4, 50
"""Constants of the line search: the required share of the predicted decrease, and the largest number of halvings."""


def eg(objective: Objective, c: Tensor, step: float | Tensor, steps: int) -> Tensor:
    """Exponentiated gradient, the default: mirror descent, which stays inside the simplex and needs no projection."""
    for _ in range(steps):
        c = torch.softmax(_log(c).sub_(objective.gradient(c).mul_(step)), dim=1)
    return c


def pgd(objective: Objective, c: Tensor, step: float | None, steps: int) -> Tensor:
    """Projected gradient descent: Eq. (7) with the projection that keeps every row a distribution.

    If `step` is None, a line search chooses the step size of every row in each step: it starts at twice the row's last
    size (at 1 in the first step) and halves the size until the row's objective decreases enough. So no row's objective
    increases.
    """
    sizes = torch.full((len(c), 1), 0.5, dtype=c.dtype, device=c.device)
    for _ in range(steps):
        gradient = objective.gradient(c)
        if step is None:
            c, sizes = backtracked(objective, c, gradient, 2.0 * sizes)
        else:
            c = project(c - step * gradient)
    return c


def backtracked(objective: Objective, c: Tensor, gradient: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows after one projected step, and the step sizes, (N, 1): `sizes`, halved until they are accepted.

    A step to c' is accepted if f(c') ≤ f(c) + `ENOUGH` · g·(c' - c): Armijo's rule along the projection arc (Bertsekas,
    IEEE Transactions on Automatic Control 1976). A row for which no step is accepted does not change; it is then
    optimal up to rounding.
    """
    value, waiting, found = objective.value(c), torch.ones(len(c), dtype=torch.bool, device=c.device), c
    for _ in range(HALVINGS):
        proposal = project(c - sizes * gradient)
        serves = waiting & (objective.value(proposal) <= value + ENOUGH * (gradient * (proposal - c)).sum(dim=1))
        found, waiting = torch.where(serves[:, None], proposal, found), waiting & ~serves
        if not waiting.any():
            break
        sizes = torch.where(waiting[:, None], 0.5 * sizes, sizes)
    return found, sizes


def softmax(objective: Objective, c: Tensor, step: float | Tensor, steps: int) -> Tensor:
    """Gradient descent on the logits A of each row, c = exp(A) / Σ exp(A), where dL/dA = c ∘ (g - Σ_m c g)."""
    a = _log(c)
    for _ in range(steps):
        g = objective.gradient(c)
        a = a - step * c * (g - (c * g).sum(dim=1, keepdim=True))
        c = torch.softmax(a, dim=1)
    return c


def exact(
    objective: Objective, c: Tensor, step: float = 1.0, steps: int = 0, *, limit: int = 5000, gap: float = 1e-9
) -> Tensor:
    """Solve every row's problem by exponentiated gradient with a line search per row.

    A step is accepted if the objective has less curvature along it than the entropy, (g' - g)·(c' - c) ≤ (c' - c)·(log
    c' - log c) / step. This needs only gradients, so rounding does no harm near the optimum. An accepted step does not
    increase the objective. A row is solved when Σ_m c g - min_m g, an upper bound on the distance of its value from the
    optimum, is at most `gap`; after `limit` steps all rows are returned as they are. Every weight of c must be above
    zero; `step` is the first step size tried, and `steps` is not used.
    """
    size = torch.full((len(c), 1), step, dtype=c.dtype, device=c.device)
    g = objective.gradient(c)
    for _ in range(limit):
        unsolved = (c * g).sum(dim=1) - g.min(dim=1).values > gap
        if not unsolved.any():
            break
        logs = _log(c)
        proposal = torch.softmax(logs - size * g, dim=1)
        move, slope = proposal - c, objective.gradient(proposal)
        bends = ((slope - g) * move).sum(dim=1) * size[:, 0]
        accepted = unsolved & (bends <= (move * (_log(proposal) - logs)).sum(dim=1))
        c, g = torch.where(accepted[:, None], proposal, c), torch.where(accepted[:, None], slope, g)
        size = torch.where(accepted[:, None], size * 1.5, size * 0.5)
    return c


def authors(objective: Objective, c: Tensor, step: float = 1.0, steps: int = 1) -> Tensor:
    """Follow the authors' released code: a normalized step, then softmax(5 c). See docs/kt_pfl.md for what this does.

    The step size of each row starts at `step` and is adjusted five times. Each time it is divided by 5 if the row would
    move by more than 0.01 per entry on average, and then multiplied by 5 if it would move by less.
    """
    for _ in range(steps):
        g = objective.gradient(c)
        length = g.abs().sum(dim=1, keepdim=True) / len(c)
        size = torch.full_like(length, step)
        for _ in range(5):
            size = torch.where(size * length > 0.01, size / 5.0, size)
            size = torch.where(size * length < 0.01, size * 5.0, size)
        c = torch.softmax(5.0 * (c - size * g), dim=1)
    return c


def frozen(objective: Objective, c: Tensor, step: float = 0.0, steps: int = 0) -> Tensor:
    """Return the matrix unchanged. KT-pFL equals FedMD if all weights are 1/N."""
    return c


UPDATES: dict[str, Callable[[Objective, Tensor, Any, int], Tensor]] = {
    **{update.__name__: update for update in (eg, pgd, softmax, exact, authors, frozen)},
    **dict.fromkeys(("random", "label_overlap"), frozen),  # methods make these matrices before the first round
}


def default_step(update: str, rho: float, objective: Objective) -> float | Tensor | None:
    """Return the step size η₃ that is used if none is set, derived in docs/kt_pfl.md.

    In general it is 2 / (2 + ρ): with ``eg`` no ρ then causes oscillation in rows with λ a_n of at most about 2. For
    ``eg`` and ``softmax`` with `SquaredDistance` it is by row, (N, 1), and at most `largest_step`. For ``pgd`` it is
    None, which means a line search: in the Euclidean geometry the curvature is up to 1 / c_nm, so no fixed step is
    safe.
    """
    step = 2.0 / (2.0 + rho)
    if update in ("eg", "softmax") and isinstance(objective, SquaredDistance):
        return objective.largest_step.clamp_max(step)
    return None if update == "pgd" else step


def _log(c: Tensor) -> Tensor:
    return c.clamp_min(1e-30).log_()


def project(rows: Tensor) -> Tensor:
    """Return the nearest point of the probability simplex to each row, (N, M), by sorting: O(M log M) a row.

    Source: Held, Wolfe, Crowder 1974; Duchi et al., ICML 2008, Fig. 1.
    """
    rows = rows - rows.max(dim=1, keepdim=True).values  # a shift does not change the result; it avoids rounding
    sorted_rows = rows.sort(dim=1, descending=True).values
    excess = sorted_rows.cumsum(dim=1) - 1.0
    counts = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    support = (sorted_rows * counts > excess).sum(dim=1, keepdim=True).clamp_min(1)  # k*; 0 only where a row is NaN
    threshold = excess.gather(1, support - 1) / support
    return (rows - threshold).clamp_min(0.0)
