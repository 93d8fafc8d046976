"""DS-FL: every client learns from a sharpened average of all predictions.

Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data, IEEE TMC 2023 (online 2021), entropy reduction
aggregation (ERA), https://arxiv.org/abs/2008.06180
"""

from dataclasses import dataclass

import torch

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.errors import check_range
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState


@dataclass(frozen=True)
class DSFL(Personal):
    """Believes that label skew makes the average too soft, and that sharpening it makes a better teacher.

    Attributes:
        temperature: of the sharpening, softmax(mean / temperature) of the averaged probabilities; the paper has 0.1.
            Averages of sharp predictions are sharpened below about 1, and flattened above.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a temperature that is none."""
        check_range("ds_fl.temperature", self.temperature, 0.001)

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average, reduce the entropy, distil."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        consensus = torch.softmax(upload.soft.mean(dim=0) / self.temperature, dim=1)  # (B, K)
        return exchange.teach(fed, state, upload, consensus, t)
