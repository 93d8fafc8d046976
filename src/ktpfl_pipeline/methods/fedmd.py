"""FedMD: every client learns from the average of all predictions.

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, NeurIPS 2019 workshop,
https://arxiv.org/abs/1910.03581. Here in the form in which KT-pFL compares it: probabilities are averaged, the
consensus is distilled with KL, and nobody trains on public labels first.
"""

from dataclasses import dataclass

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import block, uniform
from ktpfl_pipeline.core.matrix.teachers import mix_teachers
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState


@dataclass(frozen=True)
class FedMD(Personal):
    """Key idea: the consensus of all clients is everybody's best teacher."""

    title = "FedMD"
    paper_name = "FedMD"

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, communicate, aggregate, digest: the consensus is KT-pFL's teacher with every coefficient at 1/N."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        equal, _ = block(uniform(len(fed.clients), fed.device), fed.positions(cohort))
        return exchange.teach(fed, state, upload, mix_teachers(equal, upload.soft), t)
