"""The objectives that the coefficients minimize, in closed form. Each row of c is a separate convex problem."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.teachers import mix_teachers

SMALLEST = torch.finfo(torch.float64).tiny  # lower bound of p inside its logarithm, so that 0 log 0 is 0


class Objective(Protocol):
    """The function that the coefficients minimize, row by row."""

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""

    def gradient(self, c: Tensor) -> Tensor:
        """Return the gradient, (N, N)."""


@dataclass(frozen=True, eq=False)
class Divergence:
    """λ Σ_n a_n KL(p_n ‖ s_n) + ρ ‖c - 1/N‖² (Eqs. 2, 4), the KL averaged over the public samples.

    Rows are computed in blocks, so that memory besides the predictions and the matrix is bounded.
    """

    log_soft: Tensor  #: (N, B, K) log s, of the soft predictions s
    weights: Tensor  #: (N,) λ a_n
    rho: float  #: ρ
    #: the largest number of bytes of the intermediate results of one block; a block has at least one row
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
        """Return the gradient, (N, N), in two matrix products (the direction of Eq. 7).

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
        row = 5 * self.soft[0].numel() * self.soft.element_size()  # p, log p, log s, and two temporary tensors
        size = max(1, self.memory // row)
        return [slice(start, start + size) for start in range(0, len(self.soft), size)]

    @cached_property
    def soft(self) -> Tensor:
        """The soft predictions s, (N, B, K)."""
        return self.log_soft.exp()

    def _log_ratio(self, c: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Return p and log p - log s of these rows, (rows, B, K) each."""
        mixed = (c[rows] @ self.soft.flatten(1)).view_as(self.soft[rows])
        return mixed, mixed.clamp_min(SMALLEST).log() - self.log_soft[rows]


@dataclass(frozen=True, eq=False)
class SquaredError:
    """mean((p_n - s_n)²) + ρ mean_m (c[n, m] - 1/N)², the objective of the authors' released code."""

    soft: Tensor  #: (N, B, K) soft predictions s
    rho: float  #: ρ, ``penalty_ratio`` in that code

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        error = (mix_teachers(c, self.soft) - self.soft).square().mean(dim=(1, 2))
        return error + self.rho * (c - 1.0 / len(c)).square().mean(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return 2 (c G - G) + (2ρ/N) (c - 1/N) with G the Gram matrix of the predictions, (N, N)."""
        flat = self.soft.flatten(1)
        gram = flat @ flat.T / flat.shape[1]
        return 2.0 * (c @ gram - gram) + 2.0 * self.rho / len(c) * (c - 1.0 / len(c))


@dataclass(frozen=True, eq=False)
class SquaredDistance:
    """λ Σ_n a_n ‖v_n - w_n‖² / q + ρ ‖c - 1/N‖², the objective for parameters w_n as knowledge.

    v_n = Σ_m c[n, m] w_m is the mixture for client n, and q is a unit of squared distance that the method chooses.
    """

    products: Tensor  #: (N, N) the Gram matrix G of the models after their mean is subtracted, divided by q
    weights: Tensor  #: (N,) λ a_n
    rho: float  #: ρ

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        move = c - torch.eye(len(c), dtype=c.dtype, device=c.device)
        distance = ((move @ self.products) * move).sum(dim=1)
        return self.weights * distance + self.rho * (c - 1.0 / len(c)).square().sum(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return 2 λ a_n (c G - G) + 2ρ (c - 1/N), (N, N), which needs G and not the parameters."""
        pull = c @ self.products - self.products
        return 2.0 * self.weights[:, None] * pull + 2.0 * self.rho * (c - 1.0 / len(c))

    @property
    def largest_step(self) -> Tensor:
        """A step size for each row with which a step of `eg` never increases the row's objective, (N, 1).

        It is 4 / (λ a_n δ + 2ρ), where δ is the largest ‖w_i - w_j‖² / q, by the following bound. A step changes a row
        by d, whose entries sum to zero. The objective is quadratic; its quadratic term in d is at most
        (λ a_n δ / 4 + ρ / 2) ‖d‖₁², and its linear term is at most -‖d‖₁² / η₃ (Pinsker's inequality).
        """
        sizes = self.products.diag()
        farthest = (sizes[:, None] + sizes - 2.0 * self.products).max()
        return (4.0 / (self.weights * farthest + 2.0 * self.rho).clamp_min(TINY))[:, None]


@dataclass(frozen=True, eq=False)
class Likelihood:
    """λ Σ_n a_n NLL_n + ρ ‖c - 1/N‖², the supervised objective behind Theorem 1.

    NLL_n = -(1/V_n) Σ_i log Σ_m c[n, m] P_n[i, m] is the mean negative log-likelihood of client n's own labeled samples
    under its mixture of models. P_n[i, m] is the probability that client m's model gives to the true label of client
    n's sample i.
    """

    probabilities: Tensor  #: (N, V, N) P, with V the largest V_n; rows without a sample are filled with ones
    samples: Tensor  #: (N,) V_n, the number of samples of each client
    weights: Tensor  #: (N,) λ a_n
    rho: float  #: ρ

    def value(self, c: Tensor) -> Tensor:
        """Return each row's value, (N,)."""
        likelihood = self._mixed(c).log().sum(dim=1) / self.samples  # the logarithm of ones is 0
        return -self.weights * likelihood + self.rho * (c - 1.0 / len(c)).square().sum(dim=1)

    def gradient(self, c: Tensor) -> Tensor:
        """Return -λ a_n (1/V_n) Σ_i P_n[i, m] / Σ_j c[n, j] P_n[i, j] + 2ρ (c[n, m] - 1/N), (N, N).

        The ones in rows without a sample add the same number to all entries of a row of the gradient. This changes no
        update on the simplex except `authors`, which is not used with this objective.
        """
        share = torch.einsum("nvm,nv->nm", self.probabilities, 1.0 / self._mixed(c)) / self.samples[:, None]
        return -self.weights[:, None] * share + 2.0 * self.rho * (c - 1.0 / len(c))

    def _mixed(self, c: Tensor) -> Tensor:
        return torch.einsum("nvm,nm->nv", self.probabilities, c).clamp_min(TINY)
