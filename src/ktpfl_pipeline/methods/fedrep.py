"""FedRep: all clients share the body of a model, and each has a head of its own.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated Learning, ICML
2021, Algorithm 1, https://arxiv.org/abs/2102.07078. The head is the last linear layer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from ktpfl_pipeline.core import exchange, rng
from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import Method, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Models, Params, average


@dataclass(frozen=True, eq=False)
class FedRepState(PersonalState):
    """What crosses rounds: each client's model, of which only the head is its own; and the common body."""

    body: Params


@dataclass(frozen=True)
class FedRep(Method[FedRepState]):
    """Key idea: features are common, and what to make of them is personal.

    Attributes:
        body_epochs: epochs of the body in a round, after the head's, which are what remains of E; 1 in the paper.
    """

    title = "FedRep"
    exchanges = frozenset({"parameters"})
    private_data = "its own training rule"
    one_architecture = True
    own_step = True
    batches: ClassVar[int] = 1

    body_epochs: Annotated[int, Ge(0)] = 1

    def init(self, fed: Federation) -> FedRepState:
        """Start from the common initial model."""
        head, model = head_names(fed), fed.initial_model(fed.architecture)
        return FedRepState(fed.common_models(), {name: model[name] for name in model if name not in head})

    def round(self, state: FedRepState, cohort: list[int], t: int, fed: Federation) -> tuple[FedRepState, RoundReport]:
        """Send the body, train the head and then the body, upload and average the bodies."""
        model, body_epochs = fed.initial_model(fed.architecture), min(self.body_epochs, fed.training.epochs)
        body = torch.cat([torch.full_like(model[name].flatten(), name in state.body) for name in fed.trained_names])
        trained = self.personal(state, cohort, fed)
        for part, moves, epochs in (
            ("head", 1.0 - body, fed.training.epochs - body_epochs),
            ("body", body, body_epochs),
        ):
            trained, _ = fed.train_by(self, trained, t, dict.fromkeys(cohort, (moves,)), epochs, part)
        bodies: Models = {n: {name: trained[n][name] for name in state.body} for n in cohort}
        after = FedRepState({**state.models, **trained}, average(list(bodies.values()), fed.data_weights(cohort)))
        return after, RoundReport(trained, exchange.both_ways(bodies))

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Step along a part of the gradient: w - η m ∘ ∇f(w), m with ones for what may move and zeros for the rest."""
        w, moves = vectors
        return sgd(w, moves * gradient(w, group[0]), rate), moves

    def personal(self, state: FedRepState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the common body with each client's own head."""
        return {n: {**state.models[n], **state.body} for n in clients}

    def join(self, state: FedRepState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send newcomers the body; their heads are the initial one."""
        model = {**fed.initial_model(fed.architecture), **state.body}
        return given(dict.fromkeys(newcomers, model), dict.fromkeys(newcomers, state.body))


def head_names(fed: Federation) -> list[str]:
    """Return the names of the parameters of the last linear layer.

    Raises:
        InputError: if there is none.
    """
    with rng.seeded(0):
        modules = fed.build(fed.architecture).named_modules()
    layers = [name for name, part in modules if isinstance(part, nn.Linear)]
    if not layers:
        raise InputError(f"{fed.architecture} has no linear layer to be its head; leave fedrep out.")
    return [name for name in fed.trained_names if name.rpartition(".")[0] == layers[-1]]
