"""KT-pFL with soft predictions as knowledge.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021,
Algorithm 1, https://arxiv.org/abs/2111.02862
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ktpfl_pipeline.core import coefficients, exchange
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.params import Models, Params


@dataclass(frozen=True, eq=False)
class KTpFLState:
    """What crosses rounds: each client's model, and the knowledge coefficient matrix c, (N, N) float64."""

    models: Models
    knowledge: Tensor


@dataclass(frozen=True)
class KTpFL:
    """Believes that each client should learn from a mixture of all clients' predictions whose weights are learned.

    Attributes:
        update: how the matrix is updated: ``eg``, ``pgd``, ``softmax``, ``exact``, ``authors``, or ``frozen`` at 1/N.
        step: η₃, the size of one step.
        steps: steps a round.
        rho: ρ, the pull of every coefficient toward 1/N (Eq. 4); the paper tries 0.1 to 0.7.
        divergence_weight: λ (Eq. 2); None takes the cohort's size, so that λ a_n is 1 on average and ρ keeps its
            meaning for any number of clients.
        temperature: T_c of the soft predictions in the matrix's objective.
        row_weight: a_n in that objective, ``data`` for D_n / D (Eq. 8) or ``uniform`` for 1/N.
        order: ``paper`` mixes the teachers and then updates the matrix; ``coefficients_first`` the other way round, as
            the authors' released code does.
    """

    update: str = "eg"
    step: float = 0.5
    steps: int = 10
    rho: float = 0.7
    divergence_weight: float | None = None
    temperature: float = 1.0
    row_weight: str = "data"
    order: str = "paper"

    def __post_init__(self) -> None:
        """Refuse hyperparameters that mean nothing."""
        choices = {
            "update": tuple(coefficients.UPDATES),
            "row_weight": ("data", "uniform"),
            "order": ("paper", "coefficients_first"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"kt_pfl.{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}.")
        for name, least in {"step": 0.0, "steps": 1, "rho": 0.0, "divergence_weight": 0.0}.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise InputError(f"kt_pfl.{name} is {value}; it must be finite and at least {least}.")
        if not 0 < self.temperature < math.inf:
            raise InputError(f"kt_pfl.temperature is {self.temperature}; it must be finite and above 0.")

    def init(self, fed: Federation) -> KTpFLState:
        """Start from the common initial models and equal coefficients 1/N."""
        return KTpFLState(fed.initial_models(), coefficients.uniform(len(fed.clients), fed.device))

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Run one communication round (Algorithm 1)."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)  # steps 1 to 3
        rows = fed.positions(cohort)
        c, mass = coefficients.block(state.knowledge, rows)  # (|S|, |S|)
        updated = self.updated(c, upload.logits, fed.data_weights(cohort))  # Eq. (8)
        mixing = updated if self.order == "coefficients_first" else c
        soft = coefficients.soft_predictions(upload.logits, fed.distillation.temperature)  # s, (|S|, B, K)
        distilled = exchange.distill(fed, upload, coefficients.teachers(mixing, soft), t)  # steps 4 and 5, Eq. (6)
        knowledge = coefficients.write_block(state.knowledge, rows, updated, mass)  # step 6
        return KTpFLState({**state.models, **distilled}, knowledge), exchange.report(fed, upload, knowledge)

    def updated(self, c: Tensor, logits: Tensor, data_weights: Tensor) -> Tensor:
        """Return the cohort's coefficients after this round's gradient steps (Eq. 8), (|S|, |S|)."""
        soft = coefficients.soft_predictions(logits, self.temperature)
        weights = data_weights if self.row_weight == "data" else torch.full_like(data_weights, 1.0 / len(data_weights))
        scale = len(c) if self.divergence_weight is None else self.divergence_weight
        objective = (
            coefficients.SquaredError(soft, self.rho)
            if self.update == "authors"
            else coefficients.Divergence(soft, scale * weights, self.rho)  # Eqs. (2) and (4)
        )
        return coefficients.UPDATES[self.update](objective, c, self.step, self.steps)

    def personal(self, state: KTpFLState, client: int, fed: Federation) -> Params:
        """Return the client's own model, after distillation."""
        return state.models[client]
