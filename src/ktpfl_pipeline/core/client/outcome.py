"""The result of a client operation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import named
from ktpfl_pipeline.core.linalg import settled
from ktpfl_pipeline.core.machine import memory
from ktpfl_pipeline.core.weights import Params

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """The result of a client operation."""

    value: Value  #: the result
    #: the mean training loss, (), where it trained; on the device, so that no step waits for one client's
    loss: Tensor | None = None
    #: whether the weights that it trained are numbers, a bool on the device; see `checked`
    finite: Tensor | None = None
    #: how many were backpropagated, by architecture; `workspace.OWN` is the client's
    samples: Mapping[str, int] = field(default_factory=dict)
    #: the state of the optimizer after the training, if the training started from one
    optimizer_state: Params | None = None

    def giving(self, value: Other) -> "Outcome[Other]":
        """Return the outcome with another value."""
        return Outcome(value, self.loss, self.finite, self.samples, self.optimizer_state)


@dataclass(frozen=True)
class Resuming(Generic[Value]):
    """A client operation that trains and starts from the state that its optimizer had before."""

    operation: Callable[..., Outcome[Value]]

    def __call__(self, space: Workspace, n: int | str, state: Params, arguments: tuple[Any, ...]) -> Outcome[Value]:
        """Run the operation from a `state`, which is empty before the first training."""
        space.optimizer_state = state
        try:
            return self.operation(space, n, *arguments)
        finally:
            space.optimizer_state = None


def performed(
    operation: Callable[..., Outcome[Value]], space: Workspace, n: int | str, arguments: tuple[Any, ...]
) -> Outcome[Value]:
    """Return what an operation returns for client n, checked.

    Arguments and result are settled, so that every executor computes with the same layouts; see `core.linalg`. Raises
    InputError if the memory does not suffice.
    """
    inner = operation.operation if isinstance(operation, Resuming) else operation
    with memory.used_up_by(f"{named(n)}'s {getattr(inner, '__name__', 'operation')}", space.setting):
        outcome = checked(operation(space, n, *settled(arguments)))
        return replace(outcome, value=settled(outcome.value), optimizer_state=settled(outcome.optimizer_state))


def checked(outcome: Outcome[Value]) -> Outcome[Value]:
    """Return the outcome of a training with `finite` as it is; executors call it where the weights are.

    The last step of a training can break weights whose loss was a number still. The sum of all sizes tells, in one
    launch for all tensors and several times faster than `isfinite`. The device is not waited for.
    """
    numbers = [part for part in _tensors((outcome.value, outcome.optimizer_state)) if part.is_floating_point()]
    if outcome.loss is None or not numbers:
        return outcome
    return replace(outcome, finite=torch.stack(torch._foreach_norm(numbers, 1)).isfinite().all())


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of an operation's value: models, vectors, or several of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
