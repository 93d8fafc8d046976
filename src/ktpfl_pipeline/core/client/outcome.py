"""The result of a client operation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import named
from ktpfl_pipeline.core.linalg import settled
from ktpfl_pipeline.core.machine.resources import used_up_by
from ktpfl_pipeline.core.weights import Params

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """The result of a client operation."""

    value: Value  #: the result
    #: the mean training loss, (), if the operation trained; on the device, so that no step waits for it
    loss: Tensor | None = None
    #: whether the trained weights are finite, () bool on the device; see `checked`
    finite: Tensor | None = None
    #: the number of backpropagated samples by architecture; `workspace.OWN` means the client's own
    samples: Mapping[str, int] = field(default_factory=dict)
    #: the state of the optimizer after the training, if the training started from one
    optimizer_state: Params | None = None

    def giving(self, value: Other) -> "Outcome[Other]":
        """Return the outcome with another value."""
        return Outcome(value, self.loss, self.finite, self.samples, self.optimizer_state)


@dataclass(frozen=True)
class Resuming(Generic[Value]):
    """A client operation that trains, and whose optimizer starts from the state that an earlier training left."""

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
    """Return the checked outcome of an operation for client n.

    Arguments and results get a fixed memory layout (`core.linalg`), so that all executors compute alike. Raises
    InputError if the memory does not suffice.
    """
    inner = operation.operation if isinstance(operation, Resuming) else operation
    with used_up_by(f"{named(n)}'s {getattr(inner, '__name__', 'operation')}", space.setting):
        outcome = checked(operation(space, n, *settled(arguments)))
        return replace(outcome, value=settled(outcome.value), optimizer_state=settled(outcome.optimizer_state))


def checked(outcome: Outcome[Value]) -> Outcome[Value]:
    """Return the outcome with `finite` computed, if the operation trained. Executors call this where the weights are.

    The last step of a training can make weights infinite or NaN after a finite loss. The L1 norms of all tensors show
    this in one launch, several times faster than `isfinite`. The function does not wait for the device.
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
