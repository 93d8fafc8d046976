"""FedFomo: each client takes from the models of others what lowers the loss on its own validation data.

Zhang, Sapra, Fidler, Yeung, Alvarez: Personalized Federated Learning with First Order Model Optimization, ICLR 2021,
Algorithm 1, https://arxiv.org/abs/2012.08565
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core.client.operations import evaluate
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import WEIGHS, Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, mix, vector_of, wire_bytes


@dataclass(frozen=True, eq=False)
class FedFomoState(PersonalState):
    """What crosses rounds.

    Attributes:
        models: each client's model after its last local training, which the server has too.
        starts: each client's model at the start of that training, θ_old.
        affinity: (N, N) float64, P, what client i has found of client j's models so far.
        seen: (N,) bool, who has uploaded a model.
    """

    starts: Models
    affinity: Tensor
    seen: Tensor


@dataclass(frozen=True)
class FedFomo(Personal):
    """Key idea: a model is worth to a client what it lowers its validation loss by, per distance moved.

    Attributes:
        candidates: M, models that a client weighs, its own among them.
        explore: ε, the chance that a candidate is a random client instead of a promising one; 0.3 in the authors' code.
        decay: what ε loses in each round; 0.05 there.
    """

    title = "FedFomo"
    exchanges = frozenset({"parameters", "coefficients"})
    private_data = "validation losses"
    one_architecture = True
    paper_name = "FedFomo"

    candidates: Annotated[int, Ge(1)] = 5
    explore: Annotated[float, Interval(ge=0, le=1)] = 0.3
    decay: Annotated[float, Interval(ge=0, le=1)] = 0.05

    def init(self, fed: Federation) -> FedFomoState:
        """Start from the common initial model, with P = I."""
        if any(len(client.validation) == 0 for client in fed.clients):
            raise InputError(
                "fedfomo weighs models on validation samples, and a client has none; raise partition.validation_share."
            )
        models = fed.common_models()
        affinity = torch.eye(len(models), dtype=torch.float64, device=fed.device)
        return FedFomoState(models, models, affinity, affinity.new_zeros(len(models), dtype=torch.bool))

    def round(
        self, state: FedFomoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedFomoState, RoundReport]:
        """Fetch candidates, weigh them on validation data, move, train, upload the model and what was found."""
        chosen = {n: self.choose(state, n, t, fed) for n in cohort}
        models = {n: [state.models[n], *(state.models[m] for m in chosen[n])] for n in cohort}  # θ_j, its own first
        losses = fed.run("validate", validation_losses, {n: ([state.starts[n], *models[n]],) for n in cohort}, WEIGHS)
        gains = {n: worth(state.starts[n], models[n], losses[n], fed.trained_names) for n in cohort}  # Eq. (4)
        weights = {n: normalised(gains[n]) for n in cohort}  # Eq. (5)
        moved = {n: state.starts[n] if w is None else mix(models[n], w[None])[0] for n, w in weights.items()}
        trained = fed.train(moved, t)

        rows = {n: fed.positions([n, *chosen[n]]) for n in cohort}  # of n itself, and of whose models it weighed
        affinity, shown = state.affinity.clone(), torch.eye(len(state.seen)).to(state.affinity)
        for n, columns in rows.items():
            affinity[columns[0], columns] += gains[n].to(affinity)
            if (w := weights[n]) is not None:
                shown[columns[0], columns] = w.to(shown)
        seen = state.seen.clone().index_fill_(0, fed.positions(cohort), True)
        after = FedFomoState({**state.models, **trained}, {**state.starts, **moved}, affinity, seen)
        size = wire_bytes(trained[cohort[0]])
        traffic = {
            n: Traffic(coefficients_up=4 * (len(m) + 1), parameters_up=size, parameters_down=size * len(m))
            for n, m in chosen.items()
        }
        return after, RoundReport(trained, traffic, shown)

    def choose(self, state: FedFomoState, n: int, t: int, fed: Federation) -> list[int]:
        """Return the others whose models client n gets: the most promising, each swapped for a random one with ε."""
        (row,) = state.affinity[fed.positions([n])]
        promise = {client.id: float(p) for client, p, seen in zip(fed.clients, row, state.seen, strict=True) if seen}
        ranked = sorted(promise.keys() - {n}, key=lambda m: (-promise[m], m))
        picked, rest = ranked[: self.candidates - 1], ranked[self.candidates - 1 :]
        stream, epsilon = fed.stream("exploration", t, n), max(0.0, self.explore - self.decay * (t - 1))
        for place in range(len(picked)):
            if rest and float(torch.rand((), generator=stream)) < epsilon:
                other = int(torch.randint(len(rest), (), generator=stream))
                picked[place], rest[other] = rest[other], picked[place]
        return picked


def validation_losses(space: Workspace, n: int, models: list[Params]) -> Outcome[list[float]]:
    """Return the mean cross-entropy of each model on client n's validation data."""
    return Outcome([evaluate(space, n, params, "validation").value.loss for params in models])


def worth(start: Params, models: list[Params], losses: list[float], names: list[str]) -> Tensor:
    """Return what each model gains over the start, per distance from it, (candidates,) float64 (Eq. 4).

    Args:
        start: θ_old.
        models: the candidates.
        losses: on the client's validation data, of the start and of each candidate.
        names: of the parameters that distances are measured in.
    """
    here = vector_of(start, names).double()
    moved = [float((vector_of(params, names).double() - here).norm()) for params in models]
    gains = [(losses[0] - loss) / (distance + 1e-5) for loss, distance in zip(losses[1:], moved, strict=True)]
    return torch.tensor(gains, dtype=torch.float64)


def normalised(gains: Tensor) -> Tensor | None:
    """Return the positive gains as weights that sum to one; None where there is none: keep what you have."""
    positive = gains.clamp_min(0.0)
    return positive / positive.sum() if positive.sum() > TINY else None
