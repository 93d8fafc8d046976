"""Local-only training: nobody sends anything. Every federated method must beat it to have helped."""

from dataclasses import dataclass

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.params import Models, Params, select


@dataclass(frozen=True, eq=False)
class LocalState:
    """What crosses rounds: each client's model."""

    models: Models


@dataclass(frozen=True)
class Local:
    """Believes that a client's own data are enough."""

    def init(self, fed: Federation) -> LocalState:
        """Start from the common initial models."""
        return LocalState(fed.initial_models())

    def round(self, state: LocalState, cohort: list[int], t: int, fed: Federation) -> tuple[LocalState, RoundReport]:
        """Train each client of the cohort on its own data."""
        trained = fed.train(select(state.models, cohort), t)
        return LocalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, Traffic()))

    def personal(self, state: LocalState, client: int, fed: Federation) -> Params:
        """Return the client's own model."""
        return state.models[client]
