"""What clients keep from round to round besides their models: it belongs to the client, and is in the checkpoint.

Optimizers' moments, by phase of training; and of predictions on their way (`knowledge/channel.py`), what is cached and
what is fed back.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ktpfl_pipeline.core.weights import Params

States = dict[str, dict[Any, Params]]
"""By phase, and client or architecture of a model of the server."""


@dataclass
class ClientStates:
    """The states, of which those of the round that is going on count when it ends; a client outside keeps its own.

    Attributes:
        kept: of the rounds that have ended.
        fresh: of this round.
    """

    kept: States = field(default_factory=dict)
    fresh: States = field(default_factory=dict)
    _apart: str = ""

    @contextmanager
    def apart(self, name: str) -> Iterator[None]:
        """Let phases meanwhile have states of their own: of a second model that a client has in each round."""
        self._apart = f"{name} "
        try:
            yield
        finally:
            self._apart = ""

    def before(self, phase: str, n: int | str) -> Params:
        """Return what n starts a phase from; empty before its first."""
        phase = self._apart + phase
        kept = self.kept.get(phase, {}).get(n, {})
        return self.fresh.get(phase, {}).get(n, kept)

    def add(self, phase: str, states: Mapping[Any, Params]) -> None:
        """Take what a phase left."""
        self.fresh.setdefault(self._apart + phase, {}).update(states)

    def start_attempt(self) -> None:
        """Forget this round, which starts again."""
        self.fresh = {}

    def end_round(self) -> None:
        """Let this round count."""
        for phase, states in self.fresh.items():
            self.kept.setdefault(phase, {}).update(states)
        self.fresh = {}
