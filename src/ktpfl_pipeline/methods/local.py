"""Local-only training: clients exchange nothing. A federated method must beat it to have helped.

`LocalMatched` trains longer: it spends on a client's own data the work that other methods spend on distillation or on a
second model. A method that beats `LocalMatched` gains from the exchange, not from the work.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.shares import ceiling
from ktpfl_pipeline.core.weights import Models, select


@dataclass(frozen=True)
class Local(Personal):
    """Local-only training: each client trains on its own data."""

    title = "Local-only"
    covered = True
    exchanges = frozenset()
    ignores = frozenset({"distillation", "public.batch"})

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train each client of the cohort on its own data."""
        trained = self.train(select(state.models, cohort), t, fed)
        return PersonalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, Traffic()))

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return each model trained on its client's data."""
        return fed.train(models, t)


@dataclass(frozen=True)
class LocalMatched(Local):
    """Work-matched local training: each client trains on its own data with as much work as other methods.

    Attributes:
        work: the epochs per round as a multiple of E.
        public: whether a round is longer by R · B samples, the number that distillation processes.
    """

    title = "Local-only (matched work)"

    work: Annotated[float, Gt(0)] = 1.0
    public: bool = True

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return each model after training on its client's data for as many epochs as `epochs` returns."""
        calls = {n: (params, t, self.epochs(n, fed)) for n, params in models.items()}
        return fed.run_training("train", operations.train, calls, models)

    def epochs(self, n: int, fed: Federation) -> int:
        """Return client n's epochs per round, rounded up in favor of local-only training."""
        batch, own = fed.public_batch_size, len(fed.by_id[n].train)
        public = self.public * fed.distillation.passes(batch) * batch / own
        return ceiling(self.work * fed.training_of(n).epochs + public)
