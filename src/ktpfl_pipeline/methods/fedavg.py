"""FedAvg: one global model, the average of the clients' trained models; and FedAvg with local fine-tuning.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017, Algorithm 1, https://arxiv.org/abs/1602.05629. Fine-tuning: Yu, Bagdasaryan, Shmatikov: Salvaging
Federated Learning by Local Adaptation, 2020, https://arxiv.org/abs/2002.04758
"""

from dataclasses import dataclass

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import FineTuned, RoundReport, Shared, SharedState


@dataclass(frozen=True)
class FedAvg(Shared):
    """FedAvg (McMahan et al., 2017): one global model, trained by all clients.

    The new global model is evaluated before any client trains it further.
    """

    title = "FedAvg"
    covered = True
    paper_name = "FedAvg"

    def round(self, state: SharedState, cohort: list[int], t: int, fed: Federation) -> tuple[SharedState, RoundReport]:
        """Send the global model, train it locally, and average the trained models by numbers of samples."""
        trained = fed.train(dict.fromkeys(cohort, state.model), t)
        return SharedState(fed.average(trained)), RoundReport(trained, exchange.both_ways(trained))


@dataclass(frozen=True)
class FedAvgFT(FineTuned, FedAvg):
    """FedAvg + FT (Yu et al., 2020): each client fine-tunes a copy of the global model before every evaluation."""

    title = "FedAvg + FT"
    paper_name = "FedAvg-Local FT"
