"""Clients of one architecture at once, as one computation in this process: the serial executor's result up to rounding.

Dropout draws other masks, so that with it results are equal in distribution only.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.core.client.operations import Outcome, checked
from ktpfl_pipeline.core.client.stacked import STACKED
from ktpfl_pipeline.core.executors.serial import Key, SerialExecutor, Value

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Federation


class StackedExecutor(SerialExecutor):
    """Runs a verb for a stack of clients after another, where it has a stacked form.

    Attributes:
        clients: how many are in a stack, at most: memory, and the rounding.
    """

    def __init__(self, clients: int) -> None:
        """Start with nothing loaded."""
        super().__init__()
        self.clients = clients

    def run(
        self, fed: "Federation", phase: str, verb: Callable[..., Outcome[Value]], calls: Mapping[Key, tuple[Any, ...]]
    ) -> dict[Key, Value]:
        """Return the value of ``verb(workspace, n, *arguments)`` for each n of `calls`, in their order."""
        together = STACKED.get(verb)
        if together is None:
            return super().run(fed, phase, verb, calls)
        space = self._workspace(fed)
        start = time.perf_counter()
        outcomes: dict[Any, Outcome[Value]] = {}
        for stack in self._stacks(fed, calls):
            some: dict[Any, tuple[Any, ...]] = {n: calls[n] for n in stack}
            found = together(space, some) if len(stack) > 1 else {n: verb(space, n, *some[n]) for n in stack}
            outcomes |= {n: checked(outcome) for n, outcome in found.items()}
            for done in range(len(outcomes) - len(stack), len(outcomes)):
                self.progress(phase, done + 1, len(calls))
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
        return self._kept(phase, {n: outcomes[n] for n in calls})

    def _stacks(self, fed: "Federation", calls: Mapping[Key, tuple[Any, ...]]) -> list[list[Key]]:
        """Return who is computed together: one architecture, the most training images first, whatever the calls' order.

        Clients of about one size have the most steps in common. A model of the server is by itself.
        """
        alike: dict[str, list[Key]] = {}
        for n in sorted(calls, key=lambda n: (0, str(n)) if isinstance(n, str) else (-len(fed.by_id[n].train), n)):
            alike.setdefault(n if isinstance(n, str) else fed.by_id[n].architecture, []).append(n)
        return [group[i : i + self.clients] for group in alike.values() for i in range(0, len(group), self.clients)]
