"""DS-FL: every client learns from a sharpened average of all predictions.

Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data, IEEE TMC 2023 (online 2021), entropy reduction
aggregation (ERA), https://arxiv.org/abs/2008.06180
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState


@dataclass(frozen=True)
class DSFL(Personal):
    """DS-FL (Itahara et al., 2021): label skew makes the average prediction too flat as a teacher, so it is sharpened.

    Attributes:
        temperature: the temperature of the sharpening, softmax(mean / temperature) of the averaged probabilities; 0.1
            in the paper. From 0.5 on, no odds of two classes increase: the softmax flattens every average.
    """

    title = "DS-FL"
    covered = True

    temperature: Annotated[float, Ge(0.001)] = 0.1

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average, reduce the entropy, and distill."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach(fed, state, upload, self.sharpened(upload.soft), t)

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the sharpened average for new clients, (B, K)."""
        return self.sharpened(soft_predictions(logits, fed.distillation.temperature))

    def sharpened(self, soft: Tensor) -> Tensor:
        """Return the sharpened average, (B, K), of soft predictions, (N, B, K)."""
        return torch.softmax(soft.mean(dim=0) / self.temperature, dim=1)
