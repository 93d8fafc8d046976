"""KT-pFL with model parameters as knowledge, for clients of one architecture.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021,
section 4.3, https://arxiv.org/abs/2111.02862. Its appendix with the details was not at hand; docs/kt_pfl.md says what
is ours: the divergence of teacher and student becomes ‖v_n - w_n‖² / q, q the mean squared distance of two models.
"""

from dataclasses import dataclass

import torch

from ktpfl_pipeline.core import coefficients, exchange
from ktpfl_pipeline.core.errors import check_range
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.learned_matrix import LearnedMatrix
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.weights import Models, gram, mix, select, squared_distances
from ktpfl_pipeline.methods.kt_pfl import KTpFLState


@dataclass(frozen=True)
class KTpFLParams(LearnedMatrix):
    """Believes that each client should move to a mixture of all clients' models whose weights are learned.

    Attributes:
        mu: μ, how far a client moves to its mixture; 1 replaces its model.
        normalise: whether distances are measured in units of their mean q, so that λ and ρ mean the same for any
            architecture and at any stage of training.
    """

    mu: float = 1.0
    normalise: bool = True

    def __post_init__(self) -> None:
        """Refuse hyperparameters that mean nothing."""
        super().__post_init__()
        check_range("kt_pfl_params.mu", self.mu, 0, 1)

    def init(self, fed: Federation) -> KTpFLState:
        """Start from the common initial model and equal coefficients 1/N."""
        models = fed.common_models()
        return KTpFLState(models, coefficients.uniform(len(models), fed.device))

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Train, upload, mix, download, update the coefficients."""
        trained = fed.train(select(state.models, cohort), t)
        rows = fed.positions(cohort)
        c, mass = coefficients.block(state.knowledge, rows)  # (|S|, |S|)
        updated = self.updated(self.minimised(trained, fed), c)
        mixing = updated if self.order == "coefficients_first" else c
        own = torch.eye(len(c), dtype=c.dtype, device=c.device)
        mixed = mix(list(trained.values()), (1.0 - self.mu) * own + self.mu * mixing)  # v_n = Σ_m c[n, m] w_m
        knowledge = coefficients.write_block(state.knowledge, rows, updated, mass)
        models = {**state.models, **dict(zip(cohort, mixed, strict=True))}
        return KTpFLState(models, knowledge), RoundReport(trained, exchange.both_ways(trained), knowledge)

    def minimised(self, trained: Models, fed: Federation) -> coefficients.Objective:
        """Return what the cohort's block of the matrix minimises, given this round's models."""
        products = gram(list(trained.values()), fed.trained_names)
        q = mean_distance(products) if self.normalise else 1.0
        return coefficients.SquaredDistance(products / q, self.row_weights(list(trained), fed), self.rho)


def mean_distance(products: torch.Tensor) -> float:
    """Return q, the mean of ‖w_m - w_j‖² over pairs of different models; 1 where all are equal or there is one."""
    n = len(products)
    total = float(squared_distances(products).sum())
    return total / (n * (n - 1)) if total > 0 else 1.0
