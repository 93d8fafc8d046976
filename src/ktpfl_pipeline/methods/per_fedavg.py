"""Per-FedAvg: the global model is trained so that one gradient step on a client's data makes a good personal model.

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach, NeurIPS 2020, Algorithm 1, https://arxiv.org/abs/2002.07948. The objective is Σ_n f_n(w - α ∇f_n(w)) / N.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Descent, Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.weights import Models, average

DELTA = 1e-3
"""δ, the step of the difference that approximates the Hessian."""


@dataclass(frozen=True)
class PerFedAvg(Shared):
    """Per-FedAvg (Fallah et al., 2020): the global model is trained to be best after one step of adaptation.

    Attributes:
        alpha: α, the step size of the adaptation, in training and before an evaluation. None takes η₁ without its
            schedule.
        beta: β, the step size of the meta-step; None takes η₁. With 0.001, as in the paper, the model hardly changes in
            tens of rounds.
        hessian: ``True`` is the paper's Hessian-free version (HF), ``False`` its first-order one (FO).
        adapt_steps: SGD steps on a client's training batches before each evaluation.
    """

    title = "Per-FedAvg (FO)"
    own_step = True
    paper_name = "Per-FedAvg"

    alpha: Annotated[float | None, Ge(0)] = None
    beta: Annotated[float | None, Ge(0)] = None
    hessian: bool = False
    adapt_steps: Annotated[int, Ge(0)] = 1

    def round(self, state: SharedState, cohort: list[int], t: int, fed: Federation) -> tuple[SharedState, RoundReport]:
        """Send the model, take meta-steps, and average without weights, as in the objective."""
        rule = self if self.alpha is not None else replace(self, alpha=fed.training.learning_rate)
        trained, _ = fed.train_by(rule, dict.fromkeys(cohort, state.model), t)
        return SharedState(average(list(trained.values()))), RoundReport(trained, exchange.both_ways(trained))

    @property
    def batches(self) -> int:
        """Mini-batches per step: two, or three with the Hessian product."""
        return 3 if self.hessian else 2

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Step along (I - α ∇²f) ∇f(w - α ∇f(w)), each gradient on a separate mini-batch."""
        (w,) = vectors
        alpha, beta = (rate if value is None else value for value in (self.alpha, self.beta))
        v = gradient(sgd(w, gradient(w, group[0]), alpha), group[1])
        if self.hessian:
            v = v - alpha * hessian_product(w, v, gradient, group[2])
        return (sgd(w, v, beta),)

    def personal(self, state: SharedState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the global model after `adapt_steps` steps on each client's training samples."""
        models = super().personal(state, clients, fed)
        return fed.train_by(Descent(self.alpha), models, 0, steps=self.adapt_steps)[0]

    def join(self, state: SharedState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give new clients the global model, which they adapt in the same steps as all other clients."""
        return given(self.personal(state, newcomers, fed))


def hessian_product(w: Tensor, v: Tensor, gradient: Gradient, batch: Tensor) -> Tensor:
    """Return ∇²f(w) v up to O(δ²), by a central difference with a step of `DELTA` / max(1, ‖v‖)."""
    small = DELTA / torch.clamp(v.norm(), min=1.0)
    ahead, behind = (gradient(w + sign * small * v, batch, probe=True) for sign in (1.0, -1.0))
    return (ahead - behind) / (2.0 * small)
