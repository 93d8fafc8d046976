"""FedMD: every client learns from the average of all predictions.

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, NeurIPS 2019 workshop,
https://arxiv.org/abs/1910.03581. Here in the form in which KT-pFL compares it: probabilities are averaged, the
consensus is distilled with KL, and nobody trains on public labels first.
"""

from dataclasses import dataclass

from ktpfl_pipeline.core import coefficients, exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.params import Models, Params


@dataclass(frozen=True, eq=False)
class FedMDState:
    """What crosses rounds: each client's model."""

    models: Models


@dataclass(frozen=True)
class FedMD:
    """Believes that the consensus of all clients is everybody's best teacher."""

    def init(self, fed: Federation) -> FedMDState:
        """Start from the common initial models."""
        return FedMDState(fed.initial_models())

    def round(self, state: FedMDState, cohort: list[int], t: int, fed: Federation) -> tuple[FedMDState, RoundReport]:
        """Train, communicate, aggregate, digest: the consensus is KT-pFL's teacher with every coefficient at 1/N."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        equal, _ = coefficients.block(coefficients.uniform(len(fed.clients), fed.device), fed.positions(cohort))
        soft = coefficients.soft_predictions(upload.logits, fed.distillation.temperature)  # (|S|, B, K)
        distilled = exchange.distill(fed, upload, coefficients.teachers(equal, soft), t)
        return FedMDState({**state.models, **distilled}), exchange.report(fed, upload)

    def personal(self, state: FedMDState, client: int, fed: Federation) -> Params:
        """Return the client's own model, after distillation."""
        return state.models[client]
