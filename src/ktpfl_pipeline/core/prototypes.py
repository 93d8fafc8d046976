"""Class prototypes: the mean feature of a class, which models of different architectures can share.

A feature is what enters a model's last linear layer, brought to a common dimension F by averaging neighbours; no model
has to be changed for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.operations import Outcome, Workspace, descend, predict, seeded
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import Params, params_of


@contextmanager
def features(module: nn.Module, dimension: int) -> Iterator[list[Tensor]]:
    """Yield a list to which every forward pass of `module` adds its features, (b, F)."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError(
            f"{type(module).__name__} has no linear layer whose input could be its feature; "
            "leave fedproto out, or give the model a linear head."
        )
    seen: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(F.adaptive_avg_pool1d(inputs[0].flatten(1), dimension))

    handle = linear[-1].register_forward_pre_hook(keep)
    try:
        yield seen
    finally:
        handle.remove()


def train(
    space: Workspace, n: int, params: Params, prototypes: Tensor, known: Tensor, weight: float, t: int
) -> Outcome[Params]:
    """Run E epochs of SGD on CE + λ·MSE(feature, prototype of the image's class) over client n's data.

    With λ = 0 this is local training, to the bit. An image of a class that has no prototype yet counts zero in the
    second term.

    Args:
        space: the process's workspace.
        n: the client.
        params: its weights.
        prototypes: (K, F).
        known: (K,) bool, which classes have a prototype.
        weight: λ.
        t: the round, which names the streams.
    """
    fed, samples = space.fed, space.split(n, "train")
    module = space.module(n, params).train()
    targets, counted = prototypes.to(space.device, space.dtype), known.to(space.device, space.dtype)

    with features(module, prototypes.shape[1]) as seen:

        def loss(batch: Tensor) -> Tensor:
            labels = samples.labels[batch]
            fit = F.cross_entropy(module(space.pixels(samples.images[batch])), labels)
            error = (seen.pop() - targets[labels]).square().mean(dim=1)  # (b,)
            return fit + weight * (error * counted[labels]).mean()

        with seeded(rng.derive(fed.seed, "dropout", t, n), space.device):
            value = descend(module, loss, len(samples), fed.training, fed.stream("private shuffle", t, n))
    return Outcome(params_of(module), value)


def class_means(space: Workspace, n: int, params: Params, dimension: int) -> Outcome[tuple[Tensor, Tensor]]:
    """Return the mean feature of each class over client n's training images, (K, F), and their numbers, (K,).

    In eval mode and float64; zeros for a class of which the client has no image.
    """
    samples = space.split(n, "train")
    module = space.module(n, params)
    with features(module, dimension) as seen:
        predict(space, module, samples.images)
    found = torch.cat(seen).double()  # (D_n, F)
    member = F.one_hot(samples.labels, space.fed.classes).to(found)  # (D_n, K)
    counts = member.sum(dim=0)
    return Outcome((member.T @ found / counts.clamp_min(1.0)[:, None], counts))
