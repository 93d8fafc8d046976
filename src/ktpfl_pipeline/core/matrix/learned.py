"""The settings and the update that methods with a learned knowledge coefficient matrix share (KT-pFL, Eqs. 2, 4, 7)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.matrix.blocks import block, write_block
from ktpfl_pipeline.core.matrix.objectives import Objective
from ktpfl_pipeline.core.matrix.updates import UPDATES, default_step


@dataclass(frozen=True)
class LearnedMatrix:
    """Base of methods that learn the knowledge coefficient matrix, for predictions or for parameters.

    This class comes before `Personal` among the bases of a method.

    Attributes:
        update: how the matrix is updated: ``eg``, ``pgd``, ``softmax``, ``exact`` or ``authors``. Or which matrix
            replaces a learned one: ``frozen`` at 1/N; ``random``: rows drawn once per seed, uniformly from the simplex;
            ``label_overlap``: `by_overlap` of the true label shares, which only a simulation knows.
        step: η₃, the size of one step. None means 2 / (2 + ρ), with which no ρ causes oscillation; with parameters as
            knowledge it is less if models are far apart. For ``pgd``, None means a search by row, so that no row's
            objective increases.
        steps: update steps per round.
        rho: ρ, the pull of every coefficient toward 1/N (Eq. 4). The paper tries 0.1 to 0.7 with another scale of λ; 2
            was chosen on validation data (benchmarks/results/hyperparameters.md).
        divergence_weight: λ (Eq. 2); None means the cohort's size, so that λ a_n is 1 on average and ρ keeps its
            meaning for any number of clients.
        row_weight: a_n in the objective: ``data`` for D_n / D (Eq. 7), or ``uniform`` for 1/N.
        order: ``paper`` mixes the teachers and then updates the matrix; ``coefficients_first`` updates the matrix and
            then mixes the teachers, as the authors' released code does.
    """

    update: Literal["eg", "pgd", "softmax", "exact", "authors", "frozen", "random", "label_overlap"] = "eg"
    step: Annotated[float | None, Ge(0)] = None
    steps: Annotated[int, Ge(1)] = 10
    rho: Annotated[float, Ge(0)] = 2.0
    divergence_weight: Annotated[float | None, Ge(0)] = None
    row_weight: Literal["data", "uniform"] = "data"
    order: Literal["paper", "coefficients_first"] = "paper"

    def learn(self, coefficients: Tensor, rows: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
        """Update the cohort's block of the matrix (Eq. 7).

        Returns the weights with which this round mixes teachers, (|S|, |S|), and the matrix after the round, (N, N).
        `order` decides whether the weights are those before or after the update.

        Args:
            coefficients: (N, N) the matrix after the previous round.
            rows: (|S|,) the cohort's rows and columns of the matrix.
            objective: the function that the cohort's block minimizes.
        """
        before, mass = block(coefficients, rows)
        step = default_step(self.update, self.rho, objective) if self.step is None else self.step
        after = UPDATES[self.update](objective, before, step, self.steps)
        mixing = after if self.order == "coefficients_first" else before
        return mixing, write_block(coefficients, rows, after, mass)

    def row_weights(self, shares: Tensor) -> Tensor:
        """Return λ a_n of each row, (|S|,), from each client's share of the cohort's training samples, (|S|,)."""
        shares = shares if self.row_weight == "data" else torch.full_like(shares, 1.0 / len(shares))
        return shares * (len(shares) if self.divergence_weight is None else self.divergence_weight)
