"""A client's training samples as all local training uses them: augmented batches, and their loss."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import augmentation, rng
from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.recipe import RateSchedule


class PrivateSamples:
    """Client n's training split in one training. The round t, the client and `part` name the random streams.

    All training on private data uses this class, so augmentation, label smoothing and class weights always apply.
    """

    def __init__(self, space: Workspace, n: int, t: int, part: str = "") -> None:
        self._space, self._split, self._names = space, space.split(n, "train"), (t, n, part) if part else (t, n)
        self._t, self._recipe = t, space.setting.training_of(n)
        self._augment = augmentation.make(self._recipe.augmentation, self._split.inputs.shape[1:])
        self._batch = self._images = torch.empty(0)  # the last batch, and its augmented images
        self._drawn = 0
        self.labels = self._split.labels  # (D_n,) all labels, in the order of the indices of a batch
        self._criterion = space.criterion
        self._criterion.follow(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def inputs(self, batch: Tensor) -> Tensor:
        """Return the inputs at the indices `batch`, (b,), as a model takes them.

        Each batch is augmented once: a second call in a row with the same tensor `batch` returns equal inputs.
        """
        if self._augment is None:
            return self._space.numbers(self._split.inputs.index_select(0, batch))
        if batch is not self._batch:
            self._drawn += 1
            with rng.seeded(rng.derive(self._space.setting.seed, "augmentation", *self._names, self._drawn)):
                self._batch, self._images = batch, self._augment(self._split.inputs.index_select(0, batch))
        return self._space.numbers(self._images)

    def loss(self, logits: Tensor, batch: Tensor, reduction: str = "mean") -> Tensor:
        """Return the cross-entropy of logits, (b, K), with the labels at `batch`; see `Criterion`."""
        return self._criterion(logits, self.labels[batch], reduction)

    def cross_entropy(self, module: nn.Module) -> Callable[[Tensor], Tensor]:
        """Return the function from the indices of a batch, (b,), to the module's mean cross-entropy on it."""
        return lambda batch: self.loss(module(self.inputs(batch)), batch)

    def descend(
        self,
        module: nn.Module,
        loss: Callable[[Tensor], Tensor],
        epochs: int | None = None,
        rate: float | None = None,
    ) -> Outcome[None]:
        """Train a module for E epochs, or `epochs`, with the recipe of local training; see `sgd.descend`.

        `rate` replaces η₁ and its schedule.
        """
        recipe = self._recipe if epochs is None else replace(self._recipe, epochs=epochs, steps=None)
        recipe = recipe if rate is None else replace(recipe, learning_rate=rate, schedule=RateSchedule())
        with self.streams() as shuffle:
            return sgd.descend(self._space, module, loss, len(self), recipe, self._t, shuffle)

    @contextmanager
    def streams(self) -> Iterator[torch.Generator]:
        """Yield the stream that orders the samples; dropout draws from a separate stream."""
        setting = self._space.setting
        with rng.seeded(rng.derive(setting.seed, "dropout", *self._names), self._space.device):
            yield setting.stream("private shuffle", *self._names)
