"""Local-only training: nobody sends anything. Every federated method must beat it to have helped."""

from dataclasses import dataclass

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import select


@dataclass(frozen=True)
class Local(Personal):
    """Key idea: a client's own data are enough."""

    title = "Local only"
    exchanges = frozenset[str]()

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train each client of the cohort on its own data."""
        trained = fed.train(select(state.models, cohort), t)
        return PersonalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, Traffic()))
