"""APPLE: each client learns how to mix all clients' core models, on its own private loss.

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
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import PersonalParameters, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, matrix_of, mix, select, vector_of, wire_bytes, with_vector


@dataclass(frozen=True, eq=False)
class APPLEState(PersonalState):
    """The state between rounds: personal models of clients that took part (for evaluation), all cores, p, (N, N)."""

    cores: Models
    relations: Tensor


@dataclass(frozen=True)
class Mixing:
    """The rule of a local step.

    Attributes:
        core: step size of the own core, in units of η₁.
        relation: step size of p, in units of η₁.
        pull: μ, the pull of p toward p₀.
    """

    core: float
    relation: float
    pull: float
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Take one step on the own core and on the relations, both through the personal model Σ_j p_ij w_j.

        `vectors` are w_i, (d,); p_i, p₀ and e_i (one for itself, else zero), (N,) each; all cores as downloaded, (N,
        d).
        """
        w, p, prior, own, cores = vectors
        share = p @ own  # p_ii
        change = w - own @ cores  # the change of w_i in training so far
        slope = gradient(p @ cores + share * change, group[0])  # at the personal model
        by_relation = cores @ slope + own * (change @ slope)  # (N,), the loss's slope along each p_ij
        p = sgd(p, self.relation * (by_relation + self.pull * (p - prior)), rate)
        return sgd(w, self.core * share * slope, rate), p, prior, own, cores


@dataclass(frozen=True)
class APPLE(PersonalParameters):
    """APPLE (Luo and Wu, 2022): a client learns from its own loss how much it takes of each other core model.

    Both rates follow the schedule of η₁.

    Attributes:
        core_rate: step size of the own core; None is N η₁. A core's gradient is p_ii times the
            personal model's, and p_ii starts near 1/N: at η₁ cores would learn more slowly with more clients.
        relation_rate: step size of p; None is η₁ / (4 √N). A step moves Σ_j p_ij by the rate times a sum over N similar
            cores, so with many clients a fixed rate is too large.
        pull: μ, of (μ/2)‖p - p₀‖² in the loss, toward the shares of data D_j / D.
    """

    title = "APPLE"
    own_step = True

    core_rate: Annotated[float | None, Ge(0)] = None
    relation_rate: Annotated[float | None, Ge(0)] = None
    pull: Annotated[float, Ge(0)] = 0.1

    def init(self, fed: Federation) -> APPLEState:
        """Start from the initial model and p₀, the clients' shares of samples in every row."""
        cores, shares = fed.common_models(), fed.data_weights(list(fed.by_id))
        return APPLEState({}, cores, shares.repeat(len(cores), 1))

    def round(self, state: APPLEState, cohort: list[int], t: int, fed: Federation) -> tuple[APPLEState, RoundReport]:
        """Download all cores, train the own core and p on the private loss, upload the core."""
        names, rows = fed.trained_names, dict(zip(cohort, fed.places(cohort), strict=True))
        cores = matrix_of(list(state.cores.values()), names)  # (N, d)
        prior, one_hot = fed.data_weights(list(fed.by_id)), torch.eye(len(cores), device=fed.device)
        held = {n: (state.relations[i], prior, one_hot[i], cores) for n, i in rows.items()}
        trained, ends = fed.train_by(self.rule(fed), select(state.cores, cohort), t, held)
        relations, personal = state.relations.clone(), {}
        for n, i in rows.items():
            relations[i] = p = ends[n][0].to(relations)
            mixed = p.to(cores) @ cores + p[i].to(cores) * (vector_of(trained[n], names) - cores[i])  # Σ_j p_ij w_j
            personal[n] = with_vector(trained[n], names, mixed)
        size = wire_bytes(trained[cohort[0]])
        traffic = Traffic(parameters_up=size, parameters_down=size * (len(cores) - 1))
        after = APPLEState({**state.models, **personal}, {**state.cores, **trained}, relations)
        return after, RoundReport(personal, dict.fromkeys(cohort, traffic), relations)

    def join(self, state: APPLEState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give new clients the average of the cores, Σ_j p_ij w_j with p₀; personal models stay on clients."""
        return given(dict.fromkeys(newcomers, fed.average(select(state.cores, list(there)))))

    def rule(self, fed: Federation) -> Mixing:
        """Return the rule of a local step, with step sizes relative to η₁."""
        n, base = len(fed.clients), fed.training.learning_rate
        core = n if self.core_rate is None else self.core_rate / base
        relation = 0.25 * n**-0.5 if self.relation_rate is None else self.relation_rate / base
        return Mixing(core, relation, self.pull)

    def sent(self, state: APPLEState, clients: list[int], fed: Federation) -> Models:
        """Return Σ_j p_ij w_j of the current cores, from which each client would start."""
        cores, rows = list(state.cores.values()), state.relations[fed.rows(clients)]
        return dict(zip(clients, mix(cores, rows), strict=True))
