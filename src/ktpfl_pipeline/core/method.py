"""The contract of a method: three functions on a frozen dataclass whose fields are the hyperparameters.

A method is a whole-round function on purpose: KT-pFL exchanges twice in a round, others step the server after each
client. One function over shared verbs reads like the paper's pseudocode.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.params import Models, select


@dataclass(frozen=True, eq=False)
class RoundReport:
    """What a round tells the engine beside the new state.

    Attributes:
        after_local: the cohort's models after local training, before any knowledge came back.
        traffic: bytes of each cohort member.
        coefficients: (N, N) weights of each client's teachers after the round, row = student; None where the method
            has no such matrix.
    """

    after_local: Models
    traffic: dict[int, Traffic]
    coefficients: Tensor | None = None


State = TypeVar("State")


class Method(Protocol[State]):
    """A federated method; its state is a frozen dataclass of models and tensors, and is the checkpoint."""

    def init(self, fed: Federation) -> State:
        """Return the state before the first round."""

    def round(self, state: State, cohort: list[int], t: int, fed: Federation) -> tuple[State, RoundReport]:
        """Return the state after round t with the clients in `cohort`; leave `state` as it was.

        A client outside the cohort keeps its model, and its row and column of any server matrix, bit for bit.
        """

    def personal(self, state: State, clients: Iterable[int], fed: Federation) -> Models:
        """Return the model that each of `clients` would use now: the one behind the headline accuracy."""


@dataclass(frozen=True, eq=False)
class PersonalState:
    """What crosses rounds where each client keeps a model of its own: these models."""

    models: Models


class Personal:
    """What methods with `PersonalState` share: how it starts, and that a client uses its own model."""

    def init(self, fed: Federation) -> PersonalState:
        """Start from the common initial models."""
        return PersonalState(fed.initial_models())

    def personal(self, state: PersonalState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own models."""
        return select(state.models, clients)
