"""The knowledge coefficient matrix: teachers, its objective in closed form, and the ways to update it.

Legend: N clients (of the cohort), B public samples, K classes. Row = student: ``c[n, m]`` is the weight of client m's
knowledge in the teacher of client n (the transpose of the paper's c_mn), and every row is a distribution. All functions
are pure, take and return float64, and run where their tensors are. Equations are those of KT-pFL (Zhang et al.,
NeurIPS 2021); the gradient is derived in docs/kt_pfl.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError

TINY = 1e-12  # probabilities inside logarithms are at least this
ROUNDING = 1e-4
"""How far from 1 a teacher's probabilities may add up: float32, many classes, and a mixture of many clients."""


def uniform(n: int, device: torch.device | None = None) -> Tensor:
    """Return the (n, n) matrix of equal weights 1/n, the start of KT-pFL and all of FedMD."""
    return torch.full((n, n), 1.0 / n, dtype=torch.float64, device=device)


def soft_predictions(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return softmax(z / T) of uploaded logits, (N, B, K), in float64."""
    return torch.softmax(logits.double() / temperature, dim=-1)


def teachers(c: Tensor, soft: Tensor) -> Tensor:
    """Return each student's personalized soft prediction p_n = Σ_m c[n, m] s_m, (N, B, K) (Eq. 6)."""
    return (c @ soft.flatten(1)).view_as(soft)


def refuse_improper(soft: Tensor, whose: Sequence[int | str]) -> None:
    """Refuse teachers that are no distributions over the classes: what comes of them is no knowledge of anybody's.

    Args:
        soft: (n, B, K), or (B, K) the same for all.
        whose: the n students, a client's id or the name of a model of the server.

    Raises:
        InputError: naming the first student whose teacher is none, and what it is instead.
    """
    parts = soft if soft.dim() == 3 else soft[None]
    sums = parts.sum(dim=2)  # (n, B)
    sound = (sums - 1.0).abs() <= ROUNDING  # not so for NaN
    if sound.all() & (parts.amin() >= 0.0):
        return
    least = parts.amin(dim=2)
    row, image = (~sound | (least < 0.0)).nonzero()[0].tolist()
    raise InputError(
        f"The teacher of {whose[row]} is no distribution on public image {image} of the batch (it sums to "
        f"{float(sums[row, image]):.6g}, and its least value is {float(least[row, image]):.6g}); soft predictions must "
        "be at least 0 and sum to 1: a method mixes them with weights that sum to 1, or normalises them."
    )


# Objectives: each row of c has its own convex problem. ----------------------------------------------------------------


class Objective(Protocol):
    """What the coefficients minimise, row by row."""

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""

    def gradient(self, c: Tensor) -> Tensor:
        """Return the gradient, (N, N)."""


@dataclass(frozen=True, eq=False)
class Divergence:
    """λ Σ_n a_n KL(p_n ‖ s_n) + ρ ‖c - 1/N‖² (Eqs. 2, 4), the KL averaged over the public samples.

    Rows are worked on in blocks, so that beside the predictions and the matrix only a bounded piece of memory is taken.

    Attributes:
        soft: (N, B, K) soft predictions s.
        weights: (N,) λ a_n.
        rho: ρ.
        memory: bytes of one block's intermediate results, at most (of one row, at least).
    """

    soft: Tensor
    weights: Tensor
    rho: float
    memory: int = 512 * 2**20

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        values = []
        for rows in self._blocks:
            mixed, log_ratio = self._log_ratio(c, rows)
            divergence = (mixed * log_ratio).sum(dim=(1, 2)) / self.soft.shape[1]
            penalty = self.rho * (c[rows] - 1.0 / len(c)).square().sum(dim=1)
            values.append(self.weights[rows] * divergence + penalty)
        return torch.cat(values)

    def gradient(self, c: Tensor) -> Tensor:
        """Return the gradient, (N, N), in two matrix products (the direction of Eq. 8).

        dL/dc[n, m] = λ a_n (1/B) Σ_x Σ_k s_m (log p_n - log s_n + 1) + 2ρ (c[n, m] - 1/N)
        """
        result = torch.empty_like(c)
        for rows in self._blocks:
            _, log_ratio = self._log_ratio(c, rows)
            products = log_ratio.add_(1.0).flatten(1) @ self.soft.flatten(1).T / self.soft.shape[1]  # (rows, N)
            result[rows] = self.weights[rows, None] * products + 2.0 * self.rho * (c[rows] - 1.0 / len(c))
        return result

    @cached_property
    def _blocks(self) -> list[slice]:
        row = 5 * self.soft[0].numel() * self.soft.element_size()  # p, its logarithm, that of s, and two on the way
        size = max(1, self.memory // row)
        return [slice(start, start + size) for start in range(0, len(self.soft), size)]

    @cached_property
    def _log_soft(self) -> Tensor:
        return self.soft.clamp_min(TINY).log_()

    def _log_ratio(self, c: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Return p and log p - log s of these rows, (rows, B, K) each."""
        mixed = (c[rows] @ self.soft.flatten(1)).view_as(self.soft[rows])
        kept = len(self._blocks) == 1  # log s is the same at every step; where it fits, it is taken once
        log_soft = self._log_soft if kept else self.soft[rows].clamp_min(TINY).log_()
        return mixed, mixed.clamp_min(TINY).log() - log_soft


@dataclass(frozen=True, eq=False)
class SquaredError:
    """mean((p_n - s_n)²) + ρ mean_m (c[n, m] - 1/N)², the objective of the authors' released code.

    Attributes:
        soft: (N, B, K) soft predictions s.
        rho: ρ, ``penalty_ratio`` there.
    """

    soft: Tensor
    rho: float

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        error = (teachers(c, self.soft) - self.soft).square().mean(dim=(1, 2))
        return error + self.rho * (c - 1.0 / len(c)).square().mean(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return 2 (c G - G) + (2ρ/N) (c - 1/N) with G the Gram matrix of the predictions, (N, N)."""
        flat = self.soft.flatten(1)
        gram = flat @ flat.T / flat.shape[1]
        return 2.0 * (c @ gram - gram) + 2.0 * self.rho / len(c) * (c - 1.0 / len(c))


@dataclass(frozen=True, eq=False)
class SquaredDistance:
    """λ Σ_n a_n ‖v_n - w_n‖² / q + ρ ‖c - 1/N‖², of parameters as knowledge, v_n = Σ_m c[n, m] w_m.

    Attributes:
        products: (N, N) inner products of the models from their common mean, divided by q.
        weights: (N,) λ a_n.
        rho: ρ.
    """

    products: Tensor
    weights: Tensor
    rho: float

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        move = c - torch.eye(len(c), dtype=c.dtype, device=c.device)
        distance = ((move @ self.products) * move).sum(dim=1)
        return self.weights * distance + self.rho * (c - 1.0 / len(c)).square().sum(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return 2 λ a_n (c G - G) + 2ρ (c - 1/N), (N, N); the server never sees parameters twice."""
        pull = c @ self.products - self.products
        return 2.0 * self.weights[:, None] * pull + 2.0 * self.rho * (c - 1.0 / len(c))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """λ Σ_n a_n NLL_n + ρ ‖c - 1/N‖², NLL_n that of client n's mixture of models on its own labelled images.

    NLL_n = -(1/V_n) Σ_i log Σ_m c[n, m] P_n[i, m], where P_n[i, m] is the probability that client m's model gives to
    the true label of client n's image i: the supervised objective behind Theorem 1.

    Attributes:
        probabilities: (N, V, N) P; a client with fewer than V images has ones in the rest.
        images: (N,) V_n.
        weights: (N,) λ a_n.
        rho: ρ.
    """

    probabilities: Tensor
    images: Tensor
    weights: Tensor
    rho: float

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        likelihood = self._mixed(c).log().sum(dim=1) / self.images  # ones add nothing
        return -self.weights * likelihood + self.rho * (c - 1.0 / len(c)).square().sum(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return -λ a_n (1/V_n) Σ_i P_n[i, m] / Σ_j c[n, j] P_n[i, j] + 2ρ (c[n, m] - 1/N), (N, N).

        The ones that fill up a short client add the same number to its whole row, which no update on the simplex sees.
        """
        share = torch.einsum("nvm,nv->nm", self.probabilities, 1.0 / self._mixed(c)) / self.images[:, None]
        return -self.weights[:, None] * share + 2.0 * self.rho * (c - 1.0 / len(c))

    def _mixed(self, c: Tensor) -> Tensor:
        return torch.einsum("nvm,nm->nv", self.probabilities, c).clamp_min(TINY)


# Updates: each returns the new matrix; `step` is η₃, and `steps` how often it is taken. -------------------------------


def eg(objective: Objective, c: Tensor, step: float, steps: int) -> Tensor:
    """Exponentiated gradient, the default: mirror descent, which stays inside the simplex and needs no projection."""
    for _ in range(steps):
        c = torch.softmax(_log(c).sub_(objective.gradient(c).mul_(step)), dim=1)
    return c


def pgd(objective: Objective, c: Tensor, step: float, steps: int) -> Tensor:
    """Projected gradient descent: Eq. (8) with the projection that keeps every row a distribution."""
    for _ in range(steps):
        c = project(c - step * objective.gradient(c))
    return c


def softmax(objective: Objective, c: Tensor, step: float, steps: int) -> Tensor:
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
    """Solve every row's problem by exponentiated gradient with a line search of its own.

    A step is taken where the objective bends less along it than the entropy does, (g' - g)·(c' - c) ≤ (c' - c)·(log c'
    - log c) / step: gradients alone decide, so nothing is lost to rounding near the optimum. A row is solved when
    Σ_m c g - min_m g, an upper bound on its distance from the optimal value, is at most `gap`.

    Args:
        objective: what is minimised.
        c: (N, N), the start; every weight above zero.
        step: the first step size tried, per row.
        steps: not used: every row is solved, however many steps it takes.
        limit: at most this many steps all the same.
        gap: the certificate.
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
    """Follow the authors' released code: a normalised step, then softmax(5 c). See docs/kt_pfl.md for what this does.

    The step size of each row starts at `step`; five times over it is divided by 5 where the row would move by more than
    0.01 per entry, and then multiplied by 5 where by less.
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
    """Leave the matrix as it is: at 1/N, KT-pFL is FedMD."""
    return c


UPDATES = {"eg": eg, "pgd": pgd, "softmax": softmax, "exact": exact, "authors": authors, "frozen": frozen}


def default_step(update: str, rho: float) -> float:
    """Return a step η₃ that no ρ makes oscillate, for rows with λ a_n of at most about 2; derived in docs/kt_pfl.md.

    2 / (2 + ρ) in the geometry of the entropy, and 1 / (2 + 2ρ) in the Euclidean one of ``pgd``.
    """
    return 1.0 / (2.0 + 2.0 * rho) if update == "pgd" else 2.0 / (2.0 + rho)


def _log(c: Tensor) -> Tensor:
    return c.clamp_min(1e-30).log_()


def project(rows: Tensor) -> Tensor:
    """Return the nearest point of the probability simplex to each row, (N, M), by sorting: O(M log M) a row.

    Source: Held, Wolfe, Crowder 1974; Duchi et al., ICML 2008, Fig. 1.
    """
    rows = rows - rows.max(dim=1, keepdim=True).values  # a shift changes nothing, and keeps the 1 from being lost
    sorted_rows = rows.sort(dim=1, descending=True).values
    excess = sorted_rows.cumsum(dim=1) - 1.0
    counts = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    support = (sorted_rows * counts > excess).sum(dim=1, keepdim=True).clamp_min(1)  # k*; 0 only where a row is NaN
    threshold = excess.gather(1, support - 1) / support
    return (rows - threshold).clamp_min(0.0)


# Partial participation ----------------------------------------------------------------------------------------------


def block(c: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cohort's block of c as rows that sum to one, and the mass each row gives to the cohort.

    Args:
        c: (N, N) of all clients.
        positions: (|S|,) rows and columns of the cohort.

    Returns:
        (|S|, |S|) conditional weights, and (|S|, 1) masses; with everyone present c itself and ones, bit for bit.
    """
    if len(positions) == len(c):
        return c, torch.ones(len(c), 1, dtype=c.dtype, device=c.device)
    part = c[positions[:, None], positions]
    mass = part.sum(dim=1, keepdim=True)
    return part / mass, mass


def write_block(c: Tensor, positions: Tensor, part: Tensor, mass: Tensor) -> Tensor:
    """Return c with the cohort's block replaced by ``part * mass``; nothing else changes, and row sums are kept.

    A weight of the block that did not change keeps its bits, which division by the mass and back might not.
    """
    result, (before, _) = c.clone(), block(c, positions)
    kept = c[positions[:, None], positions]
    result[positions[:, None], positions] = torch.where(part == before, kept, part * mass)
    return result


def among(part: Tensor, positions: Tensor, n: int) -> Tensor:
    """Return the (n, n) matrix in which the cohort's block is `part` and every other client listens to itself alone."""
    c = torch.eye(n, dtype=part.dtype, device=part.device)
    c[positions[:, None], positions] = part
    return c
