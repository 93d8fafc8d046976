"""Mutual learning: a client's own model and a small common model learn from each other on the same batches."""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.operations import distillation_loss
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace


class Losses(NamedTuple):
    """The losses of one batch, () each, and the logits, (b, K).

    Attributes:
        own: the cross-entropy of the own model.
        common: the cross-entropy of the common model.
        own_gap: KL(common ‖ own), where the common model is the teacher.
        common_gap: KL(own ‖ common), where the own model is the teacher.
    """

    own: Tensor
    common: Tensor
    own_gap: Tensor
    common_gap: Tensor
    own_logits: Tensor
    common_logits: Tensor


def losses(
    space: Workspace, n: int, t: int, samples: PrivateSamples, own: nn.Module, common: nn.Module
) -> Callable[[Tensor], Losses]:
    """Return a function that computes the losses of both models from the indices of a batch, (b,).

    No gradient passes through a teacher's predictions. The common model's dropout has separate random streams, so the
    own model has the same dropout as in local-only training.
    """
    step = count()

    def of(batch: Tensor) -> Losses:
        inputs = samples.inputs(batch)
        mine = own(inputs)
        with rng.seeded(rng.derive(space.setting.seed, "common dropout", t, n, next(step)), space.device):
            theirs = common(inputs)
        own_gap, common_gap = (
            distillation_loss(a, torch.softmax(b.detach(), dim=1), 1.0) for a, b in ((mine, theirs), (theirs, mine))
        )
        return Losses(samples.loss(mine, batch), samples.loss(theirs, batch), own_gap, common_gap, mine, theirs)

    return of
