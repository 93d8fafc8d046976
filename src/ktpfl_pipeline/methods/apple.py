"""APPLE: each client learns how to mix everybody's core models, on its own private loss.

Luo, Wu: Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning, IJCAI 2022, Algorithm 1,
https://arxiv.org/abs/2110.08394. KT-pFL on parameters with a supervised objective.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, matrix_of, vector_of, wire_bytes, with_vector


@dataclass(frozen=True, eq=False)
class APPLEState(PersonalState):
    """What crosses rounds: the personal models (only evaluated), the core models, and p, (N, N) float64."""

    cores: Models
    relations: Tensor


@dataclass(frozen=True)
class RelationStep:
    """SGD on core model and relations. Vectors: the own core, p_i, p_i at the start, who is i (one-hot), all cores."""

    relation_rate: float
    pull: float
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return the vectors after one mini-batch."""
        core, p, prior, own, cores = vectors
        share = p @ own
        slope = gradient(p @ cores + share * (core - own @ cores), group[0])  # at the personal model Σ_j p_ij w_j
        downhill = cores @ slope + own * ((core - own @ cores) @ slope)  # (N,), of p
        moved = sgd(p, downhill + self.pull * (p - prior), self.relation_rate)
        return sgd(core, share * slope, rate), moved, prior, own, cores


@dataclass(frozen=True)
class APPLE(Personal):
    """Key idea: a client learns from its own loss how much of whose model is good for it.

    Attributes:
        relation_rate: step size of p.
        pull: μ, of (μ/2)‖p - p₀‖² in the loss, toward the shares of data D_j / D.
    """

    title = "APPLE"
    exchanges = frozenset({"parameters"})
    private_data = "its own training rule"
    one_architecture = True

    relation_rate: Annotated[float, Ge(0)] = 0.01
    pull: Annotated[float, Ge(0)] = 0.1

    def init(self, fed: Federation) -> APPLEState:
        """Start from the common initial model and the shares of data."""
        models = fed.common_models()
        return APPLEState(models, models, self.prior(fed))

    def prior(self, fed: Federation) -> Tensor:
        """Return p₀, (N, N): every row the shares of data."""
        return fed.data_weights(list(fed.by_id)).expand(len(fed.clients), -1).clone()

    def round(self, state: APPLEState, cohort: list[int], t: int, fed: Federation) -> tuple[APPLEState, RoundReport]:
        """Download all cores, train one's own and p on the private loss, upload the core."""
        names, rows = fed.trained_names, fed.positions(cohort).tolist()
        cores = matrix_of(list(state.cores.values()), names)  # (N, d)
        who, prior = torch.eye(len(cores), device=fed.device), self.prior(fed)
        others = {n: (state.relations[row], prior[row], who[row], cores) for n, row in zip(cohort, rows, strict=True)}
        starts = {n: state.cores[n] for n in cohort}
        rule = RelationStep(self.relation_rate, self.pull)
        trained, ends = fed.train_by(rule, starts, t, others)
        relations, personal = state.relations.clone(), {}
        for n, row in zip(cohort, rows, strict=True):
            p = ends[n][0].to(relations)
            relations[row] = p
            mixed = p.to(cores) @ cores + p[row].to(cores) * (vector_of(trained[n], names) - cores[row])
            personal[n] = with_vector(trained[n], names, mixed)
        size = wire_bytes(trained[cohort[0]])
        traffic = Traffic(parameters_up=size, parameters_down=size * (len(cores) - 1))
        after = APPLEState({**state.models, **personal}, {**state.cores, **trained}, relations)
        return after, RoundReport(personal, dict.fromkeys(cohort, traffic), relations)
