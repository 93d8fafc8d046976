"""Sim-pFL and TopK-pFL: teachers are weighted by the cosine similarity of predictions, without learned coefficients.

Zhang et al., NeurIPS 2021, section 5.1: the simple versions of KT-pFL in that paper. Section 5.1 compares soft
predictions, and the introduction mentions model parameters. Only predictions are comparable across architectures.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn.functional import normalize

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, taught
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.teachers import mix_teachers, soft_predictions
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState
from ktpfl_pipeline.core.weights import Models


def similarities(logits: Tensor, temperature: float) -> Tensor:
    """Return the cosine similarity of the clients' soft predictions on the public batch, (|S|, |S|), 0 to 1."""
    directions = normalize(soft_predictions(logits, temperature).flatten(1), dim=1)
    return directions @ directions.T


@dataclass(frozen=True)
class Similarity(Personal):
    """Base of both methods. `mixture` computes the weights of teachers from similarities.

    Attributes:
        temperature: the temperature of the soft predictions whose similarity is computed.
    """

    temperature: Annotated[float, Gt(0)] = 1.0

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, weight by similarity, distill."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach_mixtures(fed, state, upload, self.mixture(upload.logits), t)

    def join(self, state: PersonalState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Teach each new client a mixture of its own predictions and the trained clients', weighted by similarity."""

        def teacher(n: int, logits: Tensor) -> Tensor:
            soft = soft_predictions(logits, fed.distillation.temperature)
            return mix_teachers(self.mixture(logits), soft)[-1]

        return taught(there, newcomers, fed, teacher, introduced=True)

    @abstractmethod
    def mixture(self, logits: Tensor) -> Tensor:
        """Return the weights of teachers, (|S|, |S|): row = student, and each row sums to one."""


@dataclass(frozen=True)
class SimPFL(Similarity):
    """Sim-pFL (Zhang et al., 2021): the weights of a client's teachers are proportional to similarity of predictions.

    Attributes:
        weights: ``minmax`` subtracts the smallest similarity of a client from its similarities, as in the authors'
            code, so the least similar client gets no weight. ``direct`` uses the similarities themselves.
    """

    title = "Sim-pFL"
    covered = True
    paper_name = "Sim-pFL"

    temperature: Annotated[float, Gt(0)] = 3.0
    weights: Literal["minmax", "direct"] = "minmax"

    def mixture(self, logits: Tensor) -> Tensor:
        """Return the weights of teachers, (|S|, |S|), in proportion to similarity; row = student."""
        scores = similarities(logits, self.temperature)
        if self.weights == "minmax":
            scores = scores - scores.min(dim=1, keepdim=True).values
        total = scores.sum(dim=1, keepdim=True)
        alike = total <= TINY * len(scores)  # all clients are equally similar, so all weights are equal
        return torch.where(alike, 1.0 / len(scores), scores / total.clamp_min(TINY))


@dataclass(frozen=True)
class TopKPFL(Similarity):
    """TopK-pFL (Zhang et al., 2021): a client has the K most similar clients, including itself, as equal teachers.

    Attributes:
        k: K; 5 in the paper. In a cohort of fewer than K clients, all clients are teachers.
    """

    title = "TopK-pFL"
    covered = True
    paper_name = "TopK-pFL"

    k: Annotated[int, Ge(1)] = 5

    def mixture(self, logits: Tensor) -> Tensor:
        """Return the weights of teachers, (|S|, |S|): 1/K for the K most similar clients; row = student."""
        scores = similarities(logits, self.temperature).fill_diagonal_(2.0)  # each client is its own first teacher
        k = min(self.k, len(scores))
        nearest = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]  # the earlier client wins ties
        return torch.zeros_like(scores).scatter_(1, nearest, 1.0 / k)
