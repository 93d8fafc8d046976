"""A client's training samples as all local training uses them: augmented batches, and their loss.

With `training.class_weights: balanced` a sample of class k has the weight D_n / (K_n · D_n,k) in client n's local
training. D_n is its number of training samples, D_n,k its number of samples of class k, and K_n its number of classes.
So all its classes count equally, and the mean weight over its training samples is 1. The loss of a batch is the
weighted mean over the batch, Σ w ℓ / Σ w. With label smoothing, the part of ℓ that is spread over all classes has the
weight of each class instead, as in torch. Weights come only from the client's own training labels, and evaluation uses
none.

This applies to every cross-entropy of local training, including common heads and second models. It does not apply to
losses that are not a cross-entropy on private labels (distances to prototypes, distillation), to training on the
server, or to FedRoD's balanced softmax, which weights classes by its own prior.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.nn.functional as F
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
        weighted = self._recipe.class_weights == "balanced"
        weights = balanced(self.labels, space.setting.classes) if weighted else None
        self._weights = weights if weights is None else weights.to(space.dtype)  # (K,)

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
        """Return the cross-entropy, (), of logits, (b, K), with the labels at `batch`; the reduction is mean or sum."""
        smoothing, labels = self._recipe.label_smoothing, self.labels[batch]
        return F.cross_entropy(logits, labels, weight=self._weights, reduction=reduction, label_smoothing=smoothing)

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


def balanced(labels: Tensor, classes: int) -> Tensor:
    """Return D_n / (K_n · D_n,k) for each of K classes, (K,) float64; 0 for a class without samples."""
    counts = F.one_hot(labels, classes).sum(dim=0).double()  # `bincount` would wait for a GPU
    weights = counts.sum() / ((counts > 0).sum() * counts.clamp_min(1.0))
    return torch.where(counts > 0, weights, 0.0)
