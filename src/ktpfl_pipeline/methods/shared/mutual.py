"""Shared by methods in which a client's own model and a small common one learn from each other on the same batches."""

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
    """The losses of one batch: of each model on the labels, and its KL divergence from the other, its teacher."""

    own: Tensor
    common: Tensor
    own_gap: Tensor
    common_gap: Tensor


def losses(
    space: Workspace, n: int, t: int, samples: PrivateSamples, own: nn.Module, common: nn.Module
) -> Callable[[Tensor], Losses]:
    """Return the losses of both models as a function of the indices of a batch; no gradient passes through a teacher.

    The common model's dropout has its own streams, so that the own model's is that of local-only training.
    """
    step = count()

    def of(batch: Tensor) -> Losses:
        inputs = samples.inputs(batch)
        mine = own(inputs)
        with rng.seeded(rng.derive(space.setting.seed, "common dropout", t, n, next(step)), space.device):
            theirs = common(inputs)
        gaps = [
            distillation_loss(a, torch.softmax(b.detach(), dim=1), 1.0) for a, b in ((mine, theirs), (theirs, mine))
        ]
        return Losses(samples.loss(mine, batch), samples.loss(theirs, batch), *gaps)

    return of
