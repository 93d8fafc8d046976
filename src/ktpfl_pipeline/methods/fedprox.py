"""FedProx: FedAvg whose local training is held near the global model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2,
https://arxiv.org/abs/1812.06127
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Proximal
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.weights import vector_of


@dataclass(frozen=True)
class FedProx(Shared):
    """FedProx (Li et al., 2020): one global model; local training minimizes f_n(v) + (μ/2)‖v - w‖² from w (Eq. 2).

    Attributes:
        coupling: μ. The paper tries 0.001 to 1 and finds 1 best on both of its image datasets. With 0 the method is
            FedAvg.
    """

    title = "FedProx"
    own_step = True

    coupling: Annotated[float, Ge(0)] = 1.0

    def round(self, state: SharedState, cohort: list[int], t: int, fed: Federation) -> tuple[SharedState, RoundReport]:
        """Send w, train with a pull toward w, and average by numbers of samples, as in the paper's experiments."""
        anchors = dict.fromkeys(cohort, (vector_of(state.model, fed.trained_names),))
        trained, _ = fed.train_by(Proximal(self.coupling), dict.fromkeys(cohort, state.model), t, anchors)
        return SharedState(fed.average(trained)), RoundReport(trained, exchange.both_ways(trained))
