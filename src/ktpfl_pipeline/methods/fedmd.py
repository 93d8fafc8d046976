"""FedMD: every client learns from the average of all predictions.

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation, NeurIPS 2019 workshop,
https://arxiv.org/abs/1910.03581. This is the version that the KT-pFL paper compares with: the server averages
probabilities, clients distill the average with the KL divergence, and clients do not train on public labels first.
"""

from dataclasses import dataclass

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import block, uniform
from ktpfl_pipeline.core.matrix.teachers import mix_teachers
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState


@dataclass(frozen=True)
class FedMD(Personal):
    """FedMD (Li and Wang, 2019): the average prediction of all clients teaches every client."""

    title = "FedMD"
    covered = True
    paper_name = "FedMD"

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average, distill: KT-pFL with every coefficient at 1/N."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        equal, _ = block(uniform(len(fed.clients), fed.device), fed.rows(cohort))
        return exchange.teach(fed, state, upload, mix_teachers(equal, upload.soft), t)
