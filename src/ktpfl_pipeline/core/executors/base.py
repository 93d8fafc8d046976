"""The contract of an executor, which runs one client operation for many clients and returns the phase's result."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.errors import ClientsMissing, InputError, named
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.transfer import fetched
from ktpfl_pipeline.core.weights import Params

Value = TypeVar("Value")
Key = TypeVar("Key", int, str)
Operation = Callable[..., Outcome[Value]]
"""Called as ``operation(workspace, n, *arguments)``; n is a client, or the architecture of a model of the server."""
Calls = Mapping[Key, tuple[Any, ...]]
"""The arguments of an operation after workspace and n, by n."""
ATTEMPTS = 2
"""The number of workers that one client's call may end before the run stops."""
Progress = Callable[[str, int, int], None]
"""Called as ``progress(phase, done, total)`` after each client."""


def silent(phase: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class PhaseResult(Generic[Key, Value]):
    """The result of one phase."""

    # return values of the operation, by client (or name of a server's model), in the order of the calls
    values: dict[Key, Value]
    losses: dict[Key, float]  # mean training loss of each client that trained
    diverged: frozenset[Key]  # clients whose trained weights are not finite
    seconds: float  # wall time until the device has finished
    # the number of samples that each client backpropagated, by architecture; see `Outcome`
    samples: dict[Key, Mapping[str, int]]
    optimizer_states: dict[Key, Params]  # of each client whose optimizer keeps its state


class Executor(ABC):
    """Runs client operations. All executors return what the serial executor returns; each class states how exactly."""

    def run(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress = silent
    ) -> PhaseResult[Key, Value]:
        """Run ``operation(workspace, n, *arguments)`` for each n of `calls`.

        `setting` is the same object in all phases of a run; `phase` is the phase's name in messages and measurements.
        Raises InputError if the operation cannot be run, mostly for lack of memory, and LostError if a model that a
        worker stored was lost.
        """
        start = time.perf_counter()
        outcomes = self.outcomes(setting, phase, operation, calls, progress)
        flags: dict[Key, Tensor] = {n: finite for n in calls if (finite := outcomes[n].finite) is not None}
        losses: dict[Key, Tensor] = {n: loss for n in calls if (loss := outcomes[n].loss) is not None}
        told = fetched([*flags.values(), *losses.values()])  # waits for the device once
        if not told and setting.device.type == "cuda":
            torch.cuda.synchronize(setting.device)  # else its work would count as time of the next phase
        return PhaseResult(
            values={n: outcomes[n].value for n in calls},
            losses=dict(zip(losses, told[len(flags) :], strict=True)),
            diverged=frozenset(n for n, finite in zip(flags, told, strict=False) if not finite),
            seconds=time.perf_counter() - start,
            samples={n: outcome.samples for n, outcome in outcomes.items() if outcome.samples},
            optimizer_states={n: state for n in calls if (state := outcomes[n].optimizer_state) is not None},
        )

    @abstractmethod
    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client, in any order. Arguments and errors are those of `run`."""

    def missing(self, setting: Setting, clients: Sequence[int], t: int, least: int | None = None) -> dict[int, str]:
        """Return the reason of each of `clients` that is missing in round t; empty unless clients are real.

        `least` is the number of clients to wait for; None leaves it to the executor. Raises LostError if a client came
        back without its own model, and InputError if the run cannot go on without the missing clients.
        """
        return {}

    def enough(self, cohort: Sequence[int], out: Mapping[int, str], t: int) -> bool:
        """Return whether round t goes on without the clients `out` of its cohort, which are given with reasons.

        If not, the engine attempts the round again with the clients that have arrived by then. Raises InputError if the
        run cannot go on.
        """
        if len(out) == len(cohort):
            raise InputError(f"No client is left in round {t}. {ClientsMissing(out)}")
        return True

    def revived(self, setting: Setting, value: Any) -> Any:
        """Return a part of a checkpoint in which the values of `Handle.stored` are replaced by handles again."""
        return value

    @abstractmethod
    def close(self) -> None:
        """Free memory and end workers; the next phase loads or starts them again."""


def fields_of(setting: Setting, **changes: Any) -> dict[str, Any]:
    """Return the arguments with which another process makes a copy of `setting`, with `changes`."""
    return {entry.name: getattr(setting, entry.name) for entry in fields(Setting)} | changes


def call_failed(n: int | str, phase: str, workers: str, how: str) -> InputError:
    """Return the error for a call of client n that ended `ATTEMPTS` workers; `how` says how the last one ended."""
    return InputError(
        f"{named(n)}'s {phase} ended {ATTEMPTS} {workers}, the last by {how}; the usual reason is too little memory: "
        "set fewer workers in compute.executor, or serial, and give the same command again."
    )
