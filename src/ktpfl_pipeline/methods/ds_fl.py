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
    """Key idea: label skew makes the average too soft, and sharpening it makes a better teacher.

    Attributes:
        temperature: of the sharpening, softmax(mean / temperature) of the averaged probabilities; the paper has 0.1.
            Averages of sharp predictions are sharpened below about 1, and flattened above.
    """

    title = "DS-FL"

    temperature: Annotated[float, Ge(0.001)] = 0.1

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average, reduce the entropy, distil."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach(fed, state, upload, self.sharpened(upload.soft), t)

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the sharpened average for newcomers, (B, K)."""
        return self.sharpened(soft_predictions(logits, fed.distillation.temperature))

    def sharpened(self, soft: Tensor) -> Tensor:
        """Return the average of soft predictions, (N, B, K), with its entropy reduced, (B, K)."""
        return torch.softmax(soft.mean(dim=0) / self.temperature, dim=1)
