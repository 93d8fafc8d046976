"""Local training by a method's own rule: the method defines one step in terms of vectors, as in its paper.

A rule sees a model as the vector w, (d,), of its trained parameters. It may ask for the gradient of the client's mean
cross-entropy at any w. Batches, inputs, dropout and BatchNorm are handled here: each training sample is used once per
epoch, and running statistics change when a gradient is computed for a step, but not when it is computed for a probe.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.sgd import batches, gradients_of
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.weights import Params, params_of, trained

Vectors = tuple[Tensor, ...]


class Gradient(Protocol):
    """Computes the gradient of a client's loss."""

    def __call__(self, weights: Tensor, batch: Tensor, *, probe: bool = False) -> Tensor:
        """Return the gradient, (d,), of the mean cross-entropy of `batch` at `weights`, (d,).

        A probe does not change the running statistics of BatchNorm or the random state of dropout, so two probes in a
        row evaluate the same function.
        """


class Rule(Protocol):
    """The rule of one step."""

    @property
    def batches(self) -> int:
        """The number of mini-batches that one step uses."""

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return the vectors after one step; the first is the model that is trained.

        Args:
            vectors: the client's vectors, (d,) each; the first is the model.
            gradient: the gradient of the client's loss.
            group: the indices of `batches` mini-batches, (b,) each.
            rate: the learning rate η₁ in this round.
        """


def train(
    space: Workspace,
    n: int,
    params: Params,
    rule: Rule,
    others: Vectors,
    t: int,
    epochs: int,
    steps: int | None = None,
    part: str = "",
) -> Outcome[tuple[Params, Vectors]]:
    """Train with the rule's steps on client n's data. See `Federation.train_by` for the arguments.

    The outcome has the trained model, the `others` after the last step, and the mean loss of the last epoch's
    gradients. At most `steps` steps are taken in total.
    """
    setting, own = space.setting, PrivateSamples(space, n, t, part)
    rate = setting.training.rate(t, setting.rounds)
    module = space.module(n, params).train()
    parameters, cross_entropy = trained(module), own.cross_entropy(module)
    losses, counted = list[Tensor](), Counter[str]()

    def gradient(weights: Tensor, batch: Tensor, *, probe: bool = False) -> Tensor:
        load(parameters, weights)
        with restored(module, space.device) if probe else nullcontext():
            loss, parts = gradients_of(cross_entropy(batch), parameters)
        counted.update(space.counted([module], len(batch)))
        if not probe:
            losses.append(loss)
        return vector(parts)

    vectors: Vectors = (vector(parameters), *(other.to(space.device, space.dtype) for other in others))

    def passes() -> Iterator[list[Tensor]]:
        for _ in range(epochs):
            losses.clear()
            yield from groups(batches(len(own), setting.training.batch_size, shuffle, space.device), rule.batches)

    with own.streams() as shuffle:
        for group in islice(passes(), steps):
            vectors = rule.step(vectors, gradient, group, rate)
    load(parameters, vectors[0])
    loss = torch.stack(losses).double().mean() if losses else torch.zeros((), device=space.device)
    return Outcome((params_of(module), vectors[1:]), loss, samples=counted)


@contextmanager
def restored(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore the module's buffers and torch's global generators after the block."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)


def groups(order: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Yield the batches in groups of `size`; a last group with fewer batches repeats them until it has `size`."""
    for start in range(0, len(order), size):
        group = order[start : start + size]
        yield (group * size)[:size]


def vector(parameters: Sequence[Tensor]) -> Tensor:
    """Return parameters as one vector, (d,)."""
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@torch.no_grad()
def load(parameters: Sequence[nn.Parameter], weights: Tensor) -> None:
    """Write the vector `weights`, (d,), into parameters, in place."""
    parts = torch.split(weights, [parameter.numel() for parameter in parameters])
    torch._foreach_copy_([*parameters], [part.view_as(own) for part, own in zip(parts, parameters, strict=True)])


@dataclass(frozen=True)
class Descent:
    """Plain SGD; the only vector is the model."""

    rate: float | None = None  #: step size; None takes η₁
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return w - η g(w)."""
        (w,) = vectors
        return (sgd(w, gradient(w, group[0]), rate if self.rate is None else self.rate),)


@dataclass(frozen=True)
class Proximal:
    """SGD on the loss plus (strength / 2)·‖w - anchor‖²: vectors are the model and its anchor."""

    strength: float  #: strength of the pull toward the anchor; with 0 a step equals plain SGD bit for bit
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return w - η (g(w) + strength (w - anchor)), and the anchor."""
        w, anchor = vectors
        return sgd(w, gradient(w, group[0]) + self.strength * (w - anchor), rate), anchor


@dataclass(frozen=True)
class Masked:
    """Plain SGD of a part of a model: vectors are the model and a mask, 1 for entries that may change, else 0."""

    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return w - η m ∘ g(w), and m."""
        w, moves = vectors
        return sgd(w, moves * gradient(w, group[0]), rate), moves


def sgd(weights: Tensor, direction: Tensor, rate: float) -> Tensor:
    """Return w - η g, rounded as `sgd.step` rounds it."""
    return torch.sub(weights, direction, alpha=rate)
