"""KT-pFL (parameters): clients of one architecture exchange models instead of predictions.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021,
section 5.2.1, https://arxiv.org/abs/2111.02862. The paper's appendix with the details was not available to us;
docs/kt_pfl_variants.md states which details are ours. The squared distance ‖v_n - w_n‖² / q replaces the KL divergence,
where q is the mean squared distance between two models of the cohort.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.learned import LearnedMatrix
from ktpfl_pipeline.core.matrix.objectives import Objective, SquaredDistance
from ktpfl_pipeline.core.method import PersonalParameters, RoundReport
from ktpfl_pipeline.core.weights import Models, gram, mix, squared_distances
from ktpfl_pipeline.methods.kt_pfl import KTpFLState, first_matrix


@dataclass(frozen=True)
class KTpFLParams(LearnedMatrix, PersonalParameters):
    """KT-pFL (parameters) (Zhang et al., 2021): each client moves to a mixture of all models with learned weights.

    Attributes:
        mu: μ, the step toward the mixture; 1 replaces the model.
        normalize: whether squared distances are divided by their mean q, so that λ and ρ have the same effect for any
            architecture and at any stage of training.
    """

    title = "KT-pFL (parameters)"
    covered = True
    paper_name = "KT-pFL"

    mu: Annotated[float, Interval(ge=0, le=1)] = 1.0
    normalize: bool = True

    def init(self, fed: Federation) -> KTpFLState:
        """Start from the initial model and the first matrix, 1/N unless `update` names another."""
        return KTpFLState({}, first_matrix(self.update, fed, list(fed.common_models())))

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Train, upload, mix, download and update the coefficients."""
        trained = fed.train(self.personal(state, cohort, fed), t)
        c, coefficients = self.learn(state.coefficients, fed.rows(cohort), self.objective(trained, fed))
        own = torch.eye(len(c)).to(c)
        mixed = mix(list(trained.values()), (1.0 - self.mu) * own + self.mu * c)  # (1 - μ) w_n + μ Σ_m c_nm w_m
        models = {**state.models, **dict(zip(cohort, mixed, strict=True))}
        traffic = exchange.both_ways(trained, self.late(state, cohort))
        return KTpFLState(models, coefficients), RoundReport(trained, traffic, coefficients)

    def sent(self, state: KTpFLState, clients: list[int], fed: Federation) -> Models:
        """Return v_n of each client over the clients that took part, with the row of c normalized over them (μ = 1)."""
        seen = [n for n in fed.by_id if n in state.models]
        if not seen:
            return super().sent(state, clients, fed)
        rows = state.coefficients[fed.rows(clients)][:, fed.rows(seen)]
        mixed = mix([state.models[n] for n in seen], rows / rows.sum(dim=1, keepdim=True))
        return dict(zip(clients, mixed, strict=True))

    def objective(self, trained: Models, fed: Federation) -> Objective:
        """Return the objective of the cohort's c: λ Σ_n a_n ‖v_n - w_n‖² / q + ρ ‖c - 1/N‖²."""
        products = gram(list(trained.values()), fed.trained_names)
        q = mean_distance(products) if self.normalize else 1.0
        return SquaredDistance(products / q, self.row_weights(fed.data_weights(list(trained))), self.rho)


def mean_distance(products: torch.Tensor) -> float:
    """Return q, the mean of ‖w_m - w_j‖² over pairs of different models; 1 if all are equal or there is only one."""
    n = len(products)
    total = float(squared_distances(products).sum())
    return total / (n * (n - 1)) if total > 0 else 1.0
