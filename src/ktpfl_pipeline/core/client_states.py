"""What clients keep from round to round besides their models: it belongs to the client, and is in the checkpoint.

Optimizers' moments, by phase of training; and of predictions on their way (`knowledge/channel.py`), what is cached and
what is fed back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ktpfl_pipeline.core.weights import Params

States = dict[str, dict[Any, Params]]
"""By phase, and client or architecture of a model of the server."""


@dataclass
class ClientStates:
    """The optimizer states of the clients. A round's states count when it ends; absent clients keep their last ones."""

    kept: States = field(default_factory=dict)  # the states after the finished rounds
    fresh: States = field(default_factory=dict)  # the states of the current round

    def before(self, phase: str, n: int | str) -> Params:
        """Return what n starts a phase from; empty before its first."""
        kept = self.kept.get(phase, {}).get(n, {})
        return self.fresh.get(phase, {}).get(n, kept)

    def add(self, phase: str, states: Mapping[Any, Params]) -> None:
        """Store the optimizer states after a phase."""
        self.fresh.setdefault(phase, {}).update(states)

    def start_attempt(self) -> None:
        """Forget this round, which starts again."""
        self.fresh = {}

    def end_round(self) -> None:
        """Commit the states of this round."""
        for phase, states in self.fresh.items():
            self.kept.setdefault(phase, {}).update(states)
        self.fresh = {}
