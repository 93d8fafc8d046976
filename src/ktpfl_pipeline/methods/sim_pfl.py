"""Sim-pFL and TopK-pFL: teachers are weighted by the cosine similarity of predictions; nothing is learned.

Zhang et al., NeurIPS 2021, section 5.1: the paper's ablations of the learned matrix. The paper mentions similarity of
soft predictions there, and of parameters elsewhere; only predictions can be compared across architectures.
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
    """The round of both methods; `mixture` turns similarities into weights of teachers.

    Attributes:
        temperature: of the compared soft predictions.
    """

    temperature: Annotated[float, Gt(0)] = 1.0

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, weight by similarity, distill."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach_mixtures(fed, state, upload, self.mixture(upload.logits), t)

    def join(self, state: PersonalState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Weight the trained clients, and the new client itself, by similarity."""

        def teacher(n: int, logits: Tensor) -> Tensor:
            soft = soft_predictions(logits, fed.distillation.temperature)
            return mix_teachers(self.mixture(logits), soft)[-1]

        return taught(there, newcomers, fed, teacher, introduced=True)

    @abstractmethod
    def mixture(self, logits: Tensor) -> Tensor:
        """Return each client's weights of its teachers, rows that sum to one, (|S|, |S|)."""


@dataclass(frozen=True)
class SimPFL(Similarity):
    """Sim-pFL (Zhang et al., 2021): a client learns from others in proportion to the similarity of their predictions.

    Attributes:
        weights: ``minmax``, similarities minus the row's smallest, as in the authors' code, so the least similar client
            gets no weight; or ``direct``, the similarities themselves.
    """

    title = "Sim-pFL"
    paper_name = "Sim-pFL"

    weights: Literal["minmax", "direct"] = "minmax"

    def mixture(self, logits: Tensor) -> Tensor:
        """Return each client's weights of its teachers, in proportion to similarity, (|S|, |S|)."""
        scores = similarities(logits, self.temperature)
        if self.weights == "minmax":
            scores = scores - scores.min(dim=1, keepdim=True).values
        total = scores.sum(dim=1, keepdim=True)
        alike = total <= TINY * len(scores)  # all equally similar
        return torch.where(alike, 1.0 / len(scores), scores / total.clamp_min(TINY))


@dataclass(frozen=True)
class TopKPFL(Similarity):
    """TopK-pFL (Zhang et al., 2021): a client learns equally from the K most similar clients, including itself.

    Attributes:
        k: K, 5 in the paper; at most the size of the cohort.
    """

    title = "TopK-pFL"
    paper_name = "TopK-pFL"

    k: Annotated[int, Ge(1)] = 5

    def mixture(self, logits: Tensor) -> Tensor:
        """Return each client's weights of its teachers: 1/K for the K most similar, itself first, (|S|, |S|)."""
        scores = similarities(logits, self.temperature).fill_diagonal_(2.0)  # the client itself comes first
        k = min(self.k, len(scores))
        nearest = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]  # ties: the earlier client
        return torch.zeros_like(scores).scatter_(1, nearest, 1.0 / k)
