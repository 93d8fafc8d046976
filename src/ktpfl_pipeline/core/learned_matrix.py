"""The settings and the update that methods with a learned knowledge coefficient matrix share (KT-pFL, Eqs. 2, 4, 8)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ktpfl_pipeline.core import coefficients
from ktpfl_pipeline.core.errors import check_choice, check_range
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal


@dataclass(frozen=True)
class LearnedMatrix(Personal):
    """How the knowledge coefficient matrix is learned, whatever the knowledge is.

    Attributes:
        update: how the matrix is updated: ``eg``, ``pgd``, ``softmax``, ``exact``, ``authors``, or ``frozen`` at 1/N.
        step: η₃, the size of one step; None takes 2 / (2 + ρ) (``pgd``: 1 / (2 + 2ρ)), which no ρ makes
            oscillate.
        steps: steps a round.
        rho: ρ, the pull of every coefficient toward 1/N (Eq. 4). The paper tries 0.1 to 0.7 with another scale of λ; 2
            was chosen on validation data (docs/results.md).
        divergence_weight: λ (Eq. 2); None takes the cohort's size, so that λ a_n is 1 on average and ρ keeps its
            meaning for any number of clients.
        row_weight: a_n in that objective, ``data`` for D_n / D (Eq. 8) or ``uniform`` for 1/N.
        order: ``paper`` mixes the teachers and then updates the matrix; ``coefficients_first`` the other way round, as
            the authors' released code does.
    """

    update: str = "eg"
    step: float | None = None
    steps: int = 10
    rho: float = 2.0
    divergence_weight: float | None = None
    row_weight: str = "data"
    order: str = "paper"

    def __post_init__(self) -> None:
        """Refuse hyperparameters that mean nothing."""
        check_choice("kt_pfl.update", self.update, tuple(coefficients.UPDATES))
        check_choice("kt_pfl.row_weight", self.row_weight, ("data", "uniform"))
        check_choice("kt_pfl.order", self.order, ("paper", "coefficients_first"))
        for name, least in {"step": 0.0, "steps": 1, "rho": 0.0, "divergence_weight": 0.0}.items():
            check_range(f"kt_pfl.{name}", getattr(self, name), least)

    def updated(self, objective: coefficients.Objective, c: Tensor) -> Tensor:
        """Return the cohort's block of the matrix after one round's update (Eq. 8), (|S|, |S|)."""
        step = coefficients.default_step(self.update, self.rho) if self.step is None else self.step
        return coefficients.UPDATES[self.update](objective, c, step, self.steps)

    def row_weights(self, cohort: list[int], fed: Federation) -> Tensor:
        """Return λ a_n of each row, (|S|,)."""
        shares = fed.data_weights(cohort)  # a
        shares = shares if self.row_weight == "data" else torch.full_like(shares, 1.0 / len(shares))
        return shares * (len(shares) if self.divergence_weight is None else self.divergence_weight)
