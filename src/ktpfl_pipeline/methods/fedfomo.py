"""FedFomo: each client moves toward other clients' models that lower the loss on its own validation data.

Zhang, Sapra, Fidler, Yeung, Alvarez: Personalized Federated Learning with First Order Model Optimization, ICLR 2021,
Algorithm 1, https://arxiv.org/abs/2012.08565
"""

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, mix, vector_of, wire_bytes


@dataclass(frozen=True, eq=False)
class FedFomoState(PersonalState):
    """The state between rounds.

    Attributes:
        models: the model of each client that took part, after its last local training. The server stores them too.
        starts: θ_old, the model of each client that took part, before its last local training.
        affinity: P, (N, N) float64: entry (i, j) is the sum of the gains that client i has measured for models of
            client j, plus 1 on the diagonal.
    """

    starts: Models
    affinity: Tensor


class Move(NamedTuple):
    """A client's move toward the models that it receives before local training.

    Attributes:
        chosen: the clients whose models the client receives, M' of them.
        gains: Δ of the client's own last model and of each received model (Eq. 4), (1 + M',) float64 on the host.
        weights: the positive gains, scaled to sum to one (Eq. 5), on the host; None if no gain is positive.
        model: the model after the move, from which local training starts.
    """

    chosen: list[int]
    gains: Tensor
    weights: Tensor | None
    model: Params


@dataclass(frozen=True)
class FedFomo(Personal):
    """FedFomo (Zhang et al., 2021): a model is weighted by the decrease in validation loss per unit of distance.

    Attributes:
        candidates: M, the number of models that a client compares, including its own; 5 in the authors' code.
        explore: ε, the probability that a random client replaces a candidate; 0.3 in the authors' code.
        decay: the decrease of ε per round; 0.05 in the authors' code.
    """

    title = "FedFomo"
    exchanges = frozenset({"parameters", "coefficients"})
    fits_validation = needs_validation = True
    one_architecture = True
    paper_name = "FedFomo"

    candidates: Annotated[int, Ge(1)] = 5
    explore: Annotated[float, Interval(ge=0, le=1)] = 0.3
    decay: Annotated[float, Interval(ge=0, le=1)] = 0.05

    def init(self, fed: Federation) -> FedFomoState:
        """Start from the initial model, with P = I."""
        affinity = torch.eye(len(fed.common_models()), dtype=torch.float64, device=fed.device)
        return FedFomoState({}, {}, affinity)

    def round(
        self, state: FedFomoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedFomoState, RoundReport]:
        """Download candidates, weight them on validation data, move, train, and upload the model and the gains."""
        moves = self.moves(state, cohort, t, fed)
        starts = {n: move.model for n, move in moves.items()}
        trained, size = fed.train(starts, t), wire_bytes(starts[cohort[0]])
        found, shown, traffic = torch.zeros_like(state.affinity, device="cpu"), torch.eye(len(state.affinity)), {}
        shown = shown.to(found)
        for n, move in moves.items():
            columns = fed.places([n, *move.chosen])  # n itself and the clients whose models n received
            found[columns[0], columns] = move.gains
            if move.weights is not None:
                shown[columns[0], columns] = move.weights
            others = len(move.chosen)
            traffic[n] = Traffic(coefficients_up=4 * (others + 1), parameters_up=size, parameters_down=size * others)
        affinity = state.affinity + sent(found, fed.device)
        after = FedFomoState({**state.models, **trained}, {**state.starts, **starts}, affinity)
        return after, RoundReport(trained, traffic, shown)

    def moves(self, state: FedFomoState, clients: list[int], t: int, fed: Federation) -> dict[int, Move]:
        """Return each client's move toward the models that the server would send to the client in round t."""
        first, state = fed.initial_model(fed.architecture), replace(state, affinity=state.affinity.cpu())
        chosen = {n: self.choose(state, n, t, fed) for n in clients}
        starts = {n: state.starts.get(n, first) for n in clients}
        models = {n: [state.models.get(n, first), *(state.models[m] for m in chosen[n])] for n in clients}  # θ_j
        losses = fed.run("validate", validation_losses, {n: ([starts[n], *models[n]],) for n in clients})
        gained = torch.cat([worth(starts[n], models[n], losses[n], fed.trained_names) for n in clients]).cpu()
        found = {}
        for n, gains in zip(clients, torch.split(gained, [len(models[n]) for n in clients]), strict=True):
            weights = normalized(gains)
            moved = starts[n] if weights is None else mix(models[n], weights[None])[0]
            found[n] = Move(chosen[n], gains, weights, moved)
        return found

    def sent(self, state: FedFomoState, clients: list[int], fed: Federation) -> Models:
        """Return the model from which each client would start: its first move, with the random draws of round 0."""
        return {n: move.model for n, move in self.moves(state, clients, 0, fed).items()}

    def choose(self, state: FedFomoState, n: int, t: int, fed: Federation) -> list[int]:
        """Return the clients whose models client n receives: the M - 1 clients for which n has the largest affinity.

        A random other client replaces each with probability ε. Ties are broken at random: all affinities are equal at
        first, and with ties broken by id every client would receive the same models.
        """
        row = state.affinity[fed.places([n])[0]].tolist()
        affinity = {client.id: p for client, p in zip(fed.clients, row, strict=True) if client.id in state.models}
        others, ties = sorted(affinity.keys() - {n}), fed.stream("ties", t, n)
        drawn = dict(zip(others, torch.rand(len(others), generator=ties, dtype=torch.float64).tolist(), strict=True))
        ranked = sorted(others, key=lambda m: (-affinity[m], drawn[m]))
        picked, rest = ranked[: self.candidates - 1], ranked[self.candidates - 1 :]
        stream, epsilon = fed.stream("exploration", t, n), max(0.0, self.explore - self.decay * max(0, t - 1))
        for place in range(len(picked)):
            if rest and float(torch.rand((), generator=stream)) < epsilon:
                other = int(torch.randint(len(rest), (), generator=stream))
                picked[place], rest[other] = rest[other], picked[place]
        return picked


def validation_losses(space: Workspace, n: int, models: list[Params]) -> Outcome[Tensor]:
    """Return the mean cross-entropy of each model on client n's validation data, (models,) float64."""
    samples = space.split(n, "validation")
    answers = [predict(space, space.module(n, params), samples.inputs) for params in models]
    return Outcome(torch.stack([F.cross_entropy(logits, samples.labels).double() for logits in answers]))


def worth(start: Params, models: list[Params], losses: Tensor, names: list[str]) -> Tensor:
    """Return each model's decrease in loss, divided by its distance from the start, (candidates,) float64 (Eq. 4).

    Args:
        start: θ_old.
        models: the candidates.
        losses: the losses of `start` and of each candidate on validation data, (1 + candidates,) float64.
        names: the names of the parameters from which distances are computed.
    """
    here = vector_of(start, names).double()
    moved = torch.stack([(vector_of(params, names).double() - here).norm() for params in models])
    return (losses[0] - losses[1:]) / (moved + 1e-5)


def normalized(gains: Tensor) -> Tensor | None:
    """Return the positive gains as weights that sum to one (Eq. 5), or None if no gain is positive."""
    positive = gains.clamp_min(0.0)
    return positive / positive.sum() if positive.sum() > TINY else None
