"""APPLE: each client learns the weights with which it mixes all clients' core models, on its private loss.

Luo, Wu: Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning, IJCAI 2022, Algorithm 1,
https://arxiv.org/abs/2110.08394. APPLE resembles KT-pFL (parameters), but its objective uses labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import PersonalParameters, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, matrix_of, mix, select, vector_of, wire_bytes, with_vector


@dataclass(frozen=True, eq=False)
class APPLEState(PersonalState):
    """The state between rounds: the personal models of clients that took part, which are only evaluated, in `models`.

    Attributes:
        cores: the core model w_j of each client.
        relations: p, (N, N): p_ij is the weight of core j in the personal model of client i.
    """

    cores: Models
    relations: Tensor


@dataclass(frozen=True)
class Mixing:
    """The rule of a local step.

    Attributes:
        core: the step size of the own core, in units of η₁.
        relation: the step size of p, in units of η₁.
        pull: μ, the pull of p toward p₀.
    """

    core: float
    relation: float
    pull: float
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Take one step on the own core and one on the relations, both on the loss of the personal model Σ_j p_ij w_j.

        `vectors` are the own core w_i, (d,); p_i, p₀ and the one-hot vector e_i, (N,) each; and all cores as
        downloaded, (N, d).
        """
        w, p, prior, own, cores = vectors
        share = p @ own  # p_ii
        change = w - own @ cores  # the change of w_i in training so far
        slope = gradient(p @ cores + share * change, group[0])  # the gradient at the personal model
        by_relation = cores @ slope + own * (change @ slope)  # (N,), the derivatives with respect to p_ij
        p = sgd(p, self.relation * (by_relation + self.pull * (p - prior)), rate)
        return sgd(w, self.core * share * slope, rate), p, prior, own, cores


@dataclass(frozen=True)
class APPLE(PersonalParameters):
    """APPLE (Luo and Wu, 2022): each client learns the weight of each core model from its private loss.

    Both rates follow the schedule of η₁.

    Attributes:
        core_rate: the step size of the own core; None takes N η₁. The gradient of the core is p_ii times the gradient
            of the personal model, and p_ii starts near 1/N. With η₁ cores would learn more slowly in larger
            federations.
        relation_rate: the step size of p; None takes η₁ / (4 √N). A step changes Σ_j p_ij by the rate times a sum over
            N similar cores, so a fixed rate would be too large for many clients.
        pull: μ in the term (μ/2)‖p - p₀‖² of the loss, where p₀ are the clients' shares of samples D_j / D.
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
        """Download all cores, train the own core and p on the private loss, and upload the core."""
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
        """Give new clients the average of the cores with the weights p₀; personal models stay on clients."""
        return given(dict.fromkeys(newcomers, fed.average(select(state.cores, list(there)))))

    def rule(self, fed: Federation) -> Mixing:
        """Return the rule of a local step, with step sizes in units of η₁.

        Raises InputError if η₁ is 0 and a rate is given, because rates follow the schedule of η₁.
        """
        n, base = len(fed.clients), fed.training.learning_rate
        if base == 0 and not (self.core_rate is None and self.relation_rate is None):
            raise InputError(
                "training.learning_rate is 0, but APPLE's core_rate and relation_rate follow its schedule: set it "
                "above 0, or both of them to null."
            )
        core = n if self.core_rate is None else self.core_rate / base
        relation = 0.25 * n**-0.5 if self.relation_rate is None else self.relation_rate / base
        return Mixing(core, relation, self.pull)

    def sent(self, state: APPLEState, clients: list[int], fed: Federation) -> Models:
        """Return each client's personal model Σ_j p_ij w_j, made of the current cores."""
        cores, rows = list(state.cores.values()), state.relations[fed.rows(clients)]
        return dict(zip(clients, mix(cores, rows), strict=True))
