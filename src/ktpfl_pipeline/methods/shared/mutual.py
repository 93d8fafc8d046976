"""Mutual learning: a client's own model and a small common model learn from each other on the same batches."""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.operations import distillation_loss
from ktpfl_pipeline.core.weights import Params, params_of


class Losses(NamedTuple):
    """The losses of one batch, () each, and the logits, (b, K).

    Attributes:
        own: the cross-entropy of the own model.
        common: the cross-entropy of the common model.
        own_gap: KL(common ‖ own), where the common model is the teacher.
        common_gap: KL(own ‖ common), where the own model is the teacher.
        cross_entropy: returns the cross-entropy of other logits for this batch, (b, K).
    """

    own: Tensor
    common: Tensor
    own_gap: Tensor
    common_gap: Tensor
    own_logits: Tensor
    common_logits: Tensor
    cross_entropy: Callable[[Tensor], Tensor]


def train_pair(
    space: Workspace,
    n: int,
    own: Params,
    common: Params,
    t: int,
    architecture: str,
    loss: Callable[[int, Losses], Tensor],
    epochs: int | None = None,
    also: tuple[nn.Module, ...] = (),
) -> Outcome[tuple[Params, Params]]:
    """Train both models on the same batches of client n's data for E epochs, or `epochs`; return both.

    No gradient passes through a teacher's predictions. The common model's dropout has separate random streams, so the
    own model has the same dropout as in local-only training.

    Args:
        own: the client's own model.
        common: the common model.
        architecture: the architecture of the common model.
        loss: returns what is minimized, (), from the client and the losses of a batch.
        also: other modules that are trained with them.
    """
    samples, step = PrivateSamples(space, n, t), count()
    mine, theirs = space.module(n, own).train(), space.module(architecture, common, "common").train()

    def on(batch: Tensor) -> Tensor:
        inputs = samples.inputs(batch)
        a = mine(inputs)
        with rng.seeded(rng.derive(space.setting.seed, "common dropout", t, n, next(step)), space.device):
            b = theirs(inputs)
        own_gap, common_gap = (distillation_loss(x, torch.softmax(y.detach(), dim=1), 1.0) for x, y in ((a, b), (b, a)))
        fits = samples.loss(a, batch), samples.loss(b, batch)
        return loss(n, Losses(*fits, own_gap, common_gap, a, b, lambda logits: samples.loss(logits, batch)))

    outcome = samples.descend(nn.ModuleList([mine, theirs, *also]), on, epochs)
    return outcome.giving((params_of(mine), params_of(theirs)))
