"""One client after another in this process: the reference that every other executor must equal, bit for bit."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ktpfl_pipeline.core.client.operations import Outcome, Workspace, checked

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Federation

Value = TypeVar("Value")
Key = TypeVar("Key", int, str)


class SerialExecutor:
    """Runs a verb for one client after another.

    Attributes:
        seconds: wall time by phase.
        losses: mean training loss by phase and client (or name of a model of the server), of the phase's last call.
        broken: by phase, of whom the weights that its last call trained are not finite.
        restored: clients that were given back weights of before a training which diverged, in this round.
        progress: called as ``progress(phase, done, total)`` after each client.
    """

    def __init__(self) -> None:
        """Start with nothing loaded and nobody watching."""
        self.seconds: dict[str, float] = {}
        self.losses: dict[str, dict[int | str, float]] = {}
        self.broken: dict[str, set[int | str]] = {}
        self.restored: set[int] = set()
        self.progress: Callable[[str, int, int], None] = lambda phase, done, total: None
        self._space: Workspace | None = None

    def start_round(self) -> None:
        """Forget the measurements of the round before."""
        self.seconds = {}
        self.start_attempt()

    def start_attempt(self) -> None:
        """Forget what was found in this round, which is begun again; the time that it took counts."""
        self.losses, self.broken, self.restored = {}, {}, set()

    def run(
        self, fed: "Federation", phase: str, verb: Callable[..., Outcome[Value]], calls: Mapping[Key, tuple[Any, ...]]
    ) -> dict[Key, Value]:
        """Return the value of ``verb(workspace, n, *arguments)`` for each n of `calls`, in their order.

        n is a client, or the architecture of a model of the server.
        """
        space = self._workspace(fed)
        start = time.perf_counter()
        outcomes = {}
        for done, (n, arguments) in enumerate(calls.items(), start=1):
            outcomes[n] = checked(verb(space, n, *arguments))
            self.progress(phase, done, len(calls))
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
        return self._kept(phase, outcomes)

    def _kept(self, phase: str, outcomes: Mapping[Key, Outcome[Value]]) -> dict[Key, Value]:
        """Write down each call's loss and whether its weights are finite; return the values."""
        for n, outcome in outcomes.items():
            if outcome.loss is not None:
                self.losses.setdefault(phase, {})[n] = outcome.loss
        flags = {n: outcome.finite for n, outcome in outcomes.items() if outcome.finite is not None}
        if flags:
            whole = torch.stack(list(flags.values())).tolist()  # one wait for the device, for all of them
            self.broken[phase] = {n for n, finite in zip(flags, whole, strict=True) if not finite}
        return {n: outcome.value for n, outcome in outcomes.items()}

    def _workspace(self, fed: "Federation") -> Workspace:
        if self._space is None or self._space.fed is not fed:
            self._space = Workspace(fed)
        return self._space

    def close(self) -> None:
        """Let go of what was loaded; the next verb loads it again."""
        self._space = None
