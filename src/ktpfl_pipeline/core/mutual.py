"""Mutual learning: a client trains its own model and a copy of a common one, each teaching the other.

Source: Zhang, Xiang, Hospedales, Lu: Deep Mutual Learning, CVPR 2018; between federated clients, Shen et al. 2020.
"""

from itertools import count

import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.operations import Outcome, Workspace, descend, distillation_loss, seeded
from ktpfl_pipeline.core.weights import Params, params_of


def train(
    space: Workspace, n: int, own: Params, common: Params, architecture: str, t: int, alpha: float, beta: float
) -> Outcome[tuple[Params, Params]]:
    """Train both models on the same batches of client n's data for E epochs; return both.

    The own model descends α·CE + (1 - α)·KL(common ‖ own), the common one β·CE + (1 - β)·KL(own ‖ common); neither
    gradient passes through the teacher. With α = 1 the own model trains as it would alone, to the bit.

    Args:
        space: the process's workspace.
        n: the client.
        own: weights of its own model.
        common: weights of the common model.
        architecture: of the common model.
        t: the round, which names the streams.
        alpha: α, from 0 to 1.
        beta: β, from 0 to 1.
    """
    fed, samples = space.fed, space.split(n, "train")
    module, companion = space.module(n, own).train(), space.module(architecture, common, "common").train()
    step = count()

    def loss(batch: Tensor) -> Tensor:
        images, labels = space.pixels(samples.images[batch]), samples.labels[batch]
        mine = module(images)
        seed = rng.derive(fed.seed, "common dropout", t, n, next(step))
        with seeded(seed, space.device):  # the own one's: as if alone
            theirs = companion(images)
        return (
            alpha * F.cross_entropy(mine, labels)
            + (1.0 - alpha) * distillation_loss(mine, torch.softmax(theirs.detach(), dim=1), 1.0)
            + beta * F.cross_entropy(theirs, labels)
            + (1.0 - beta) * distillation_loss(theirs, torch.softmax(mine.detach(), dim=1), 1.0)
        )

    with seeded(rng.derive(fed.seed, "dropout", t, n), space.device):
        both = torch.nn.ModuleList([module, companion])
        value = descend(both, loss, len(samples), fed.training, fed.stream("private shuffle", t, n))
    return Outcome((params_of(module), params_of(companion)), value)
