"""Ditto: in addition to the global model of FedAvg, each client trains a personal model near the global model.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, Algorithm 1,
https://arxiv.org/abs/2012.04221
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Proximal
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.weights import select, vector_of


@dataclass(frozen=True)
class Ditto(BesideCommon):
    """Ditto (Li et al., 2021): each client trains a personal model near the global model, which it does not influence.

    Attributes:
        coupling: λ in the term (λ/2)‖v - w‖² of the personal model's loss, where v is the personal and w the global
            model; the paper tries 0.05 to 2.
    """

    title = "Ditto"
    own_step = True

    coupling: Annotated[float, Ge(0)] = 0.1

    def round(self, state: CommonState, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Train the global model as in FedAvg, and each personal model with a pull toward the received global model."""
        anchor = (vector_of(state.common, fed.trained_names),)
        own = select({**fed.common_models(), **state.models}, cohort)
        own, _ = fed.train_by(Proximal(self.coupling), own, t, dict.fromkeys(cohort, anchor))
        trained = fed.train(dict.fromkeys(cohort, state.common), t)
        common = fed.average(trained)
        return CommonState({**state.models, **own}, common), RoundReport(own, exchange.both_ways(trained))
