"""Clients of one architecture at once, as one computation in this process: the serial executor's result up to rounding.

Dropout draws other masks, so that with it results are equal in distribution only.
"""

from typing import Any

from ktpfl_pipeline.core.client.outcome import Outcome, checked, performed
from ktpfl_pipeline.core.client.stacked import form_of, possible
from ktpfl_pipeline.core.executors.contract import Calls, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.machine import memory
from ktpfl_pipeline.core.setting import Setting


class StackedExecutor(SerialExecutor):
    """Runs an operation for one stack of clients after another, where it has a stacked form.

    Attributes:
        clients: how many are in a stack, at most: memory, and the rounding.
    """

    def __init__(self, clients: int) -> None:
        super().__init__()
        self.clients = clients

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client, a stack of them after another."""
        together = form_of(operation, setting)
        if together is None:
            return super().outcomes(setting, phase, operation, calls, progress)
        space = self.workspace(setting)
        outcomes: dict[Any, Outcome[Value]] = {}
        for stack in self._stacks(setting, calls):
            some: dict[Any, tuple[Any, ...]] = {n: calls[n] for n in stack}
            as_one = len(stack) > 1 and possible(space, some, operation)
            if as_one:
                with memory.told(f"The {phase} of clients {', '.join(map(str, stack))} at once", setting):
                    outcomes |= {n: checked(outcome) for n, outcome in together(space, some).items()}
            else:
                outcomes |= {n: performed(operation, space, n, some[n]) for n in stack}
            for done in range(len(outcomes) - len(stack), len(outcomes)):
                progress(phase, done + 1, len(calls))
        return outcomes

    def _stacks(self, setting: Setting, calls: Calls[Key]) -> list[list[Key]]:
        """Return who is computed together: one architecture, most training samples first, whatever the calls' order.

        Clients of about one size have the most steps in common. A model of the server is by itself.
        """
        alike: dict[str, list[Key]] = {}
        for n in sorted(calls, key=lambda n: (0, str(n)) if isinstance(n, str) else (-len(setting.by_id[n].train), n)):
            alike.setdefault(n if isinstance(n, str) else setting.by_id[n].architecture, []).append(n)
        return [group[i : i + self.clients] for group in alike.values() for i in range(0, len(group), self.clients)]
