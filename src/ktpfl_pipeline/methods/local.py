"""Local-only training: nobody sends anything. Every federated method must beat it to have helped.

`LocalMatched` beside it trains longer: what other methods spend on distillation, or on a second model, it spends on a
client's own data. What still beats it has gained by what it exchanges, and not by the work.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, select


@dataclass(frozen=True)
class Local(Personal):
    """Key idea: a client's own data are enough."""

    title = "Local only"
    exchanges = frozenset[str]()

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train each client of the cohort on its own data."""
        trained = self.train(select(state.models, cohort), t, fed)
        return PersonalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, Traffic()))

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return each model trained on its client's data."""
        return fed.train(models, t)


@dataclass(frozen=True)
class LocalMatched(Local):
    """Key idea: a client's own data are enough, if it may work as hard on them as others do.

    Attributes:
        work: epochs in a round, in units of E.
        public: whether it trains on R · |D_r| images more, as many as a method that distils.
    """

    title = "Local only (matched work)"
    private_data = "more epochs than others have"

    work: Annotated[float, Gt(0)] = 1.0
    public: bool = True

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return each model trained on its client's data for as many epochs as the work takes."""
        calls = {n: (params, t, self.epochs(n, fed)) for n, params in models.items()}
        return fed.run_training("train", operations.train, calls, models, uses="trains for more epochs than others")

    def epochs(self, n: int, fed: Federation) -> int:
        """Return client n's epochs in a round, rounded up: in doubt local-only has the more work."""
        public = self.public * fed.distillation.epochs * fed.public_batch_size / len(fed.by_id[n].train)
        return math.ceil(self.work * fed.training_of(n).epochs + public)
