"""The state that each client keeps between rounds besides its model. The checkpoint contains this state.

The state has the moments of the client's optimizer, by training phase. For encoded predictions
(`knowledge/channel.py`), it also has the cache and the error feedback.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ktpfl_pipeline.core.weights import Params

States = dict[str, dict[Any, Params]]
"""States by phase, then by client id or, for a model of the server, by architecture."""


@dataclass
class ClientStates:
    """The clients' states. A round's states are kept when the round ends. Absent clients keep their last states."""

    kept: States = field(default_factory=dict)  # the states after the finished rounds
    fresh: States = field(default_factory=dict)  # the states of the current round

    def before(self, phase: str, n: int | str) -> Params:
        """Return the state from which client n, or model n of the server, starts a phase; empty before the first."""
        kept = self.kept.get(phase, {}).get(n, {})
        return self.fresh.get(phase, {}).get(n, kept)

    def add(self, phase: str, states: Mapping[Any, Params]) -> None:
        self.fresh.setdefault(phase, {}).update(states)

    def start_attempt(self) -> None:
        """Discard the states of the current round, because the round starts again."""
        self.fresh = {}

    def end_round(self) -> None:
        for phase, states in self.fresh.items():
            self.kept.setdefault(phase, {}).update(states)
        self.fresh = {}
