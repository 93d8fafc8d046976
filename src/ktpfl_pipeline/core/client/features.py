"""A model as an extractor and a head: the head is the layer that makes the logits, and its input is the feature.

Features of different architectures, f numbers each, are brought to a common dimension F: neighbors are averaged and
multiplied by √(f/F), so that features that are equal among neighbors keep their length. Without it wide features
shrink, and a common head learns them slowly. This pooling is a matrix P, whose rows are orthonormal where F divides f.
A common head (W, b) on pooled features is the layer (W P, b) of an architecture: a model that has it is a model like
any other. Training (W P, b) is not training (W, b), though: a step moves logits by ‖f‖² instead of ‖P f‖². So such a
model trains in the common head's parameters, in rounds and in adaptation (`train_common_head`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.pooling import Pool, pooled
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.weights import Params, params_of


@contextmanager
def features(head: nn.Module, dimension: int) -> Iterator[list[Tensor]]:
    """Yield a list to which every forward pass of a model adds its features, (b, F), in its weights' precision.

    `head` is the layer that makes the model's logits. Of a feature map, which enters a convolution, positions are
    averaged.
    """
    seen: list[Tensor] = []
    dtype = next(head.parameters()).dtype

    def see(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        whole = isinstance(head, nn.Linear) or inputs[0].dim() < 3
        seen.append(pooled((inputs[0].flatten(1) if whole else inputs[0].flatten(2).mean(dim=2)).to(dtype), dimension))

    with head.register_forward_pre_hook(see):
        yield seen


@contextmanager
def replaced_head(module: nn.Module, name: str, common: nn.Linear) -> Iterator[None]:
    """Put a common head, (K, F), on pooled features in place of the model's own head `name`, inside the block.

    In the block, the common head's parameters belong to the module, and the parameters of its own head do not.
    """
    own = module.get_submodule(name)
    module.set_submodule(name, nn.Sequential(Pool(common.in_features), common))
    try:
        yield
    finally:
        module.set_submodule(name, own)


def fitted(params: Params, name: str, head: Params) -> Params:
    """Return a model with a common head, (W P, b), in place of its own head, whose name is `name`."""
    own = params[f"{name}.weight"]  # (K, f)
    everything = torch.eye(own.shape[1], device=own.device, dtype=own.dtype)
    pooling = pooled(everything, head["weight"].shape[1])  # (f, F), P transposed
    return {**params, f"{name}.weight": head["weight"] @ pooling.T, f"{name}.bias": head["bias"]}


def train_common_head(
    space: Workspace,
    n: int,
    params: Params,
    head: Params,
    t: int,
    epochs: int | None = None,
    weight: float = 0.0,
    generated: Iterator[tuple[Tensor, Tensor]] | None = None,
) -> Outcome[tuple[Params, Params]]:
    """Train client n's extractor and the common `head` on its cross-entropy for E epochs, or `epochs`.

    The model's own head is not trained. The outcome has the model with the trained common head, and that head.

    Args:
        head: ``weight`` (K, F) and ``bias`` (K,).
        weight: of the common head's cross-entropy on generated features.
        generated: for one batch after another, as many features, (b, F), and their classes, (b,).
    """
    own = PrivateSamples(space, n, t)
    module, common = space.module(n, params).train(), space.linear(head)
    name, _ = space.head(n, module)

    cross_entropy = own.cross_entropy(module)

    def loss(batch: Tensor) -> Tensor:
        fit = cross_entropy(batch)
        if generated is None:
            return fit
        features, classes = next(generated)
        return fit + weight * F.cross_entropy(common(features), classes)

    with replaced_head(module, name, common):
        outcome = own.descend(module, loss, epochs)
        trained = params_of(common)
    return outcome.giving((fitted(params_of(module), name, trained), trained))


def class_means(space: Workspace, n: int, params: Params, dimension: int) -> Outcome[tuple[Tensor, Tensor]]:
    """Return each class's mean feature over client n's training samples, (K, F), and whether it has any, (K,) bool.

    In eval mode and float64; zeros for a class of which the client has no sample. The numbers of samples stay at the
    client, because no method needs them.
    """
    samples, module = space.split(n, "train"), space.module(n, params)
    with features(space.head(n, module)[1], dimension) as seen:
        predict(space, module, samples.inputs)
    found = torch.cat(seen).double()  # (D_n, F)
    member = F.one_hot(samples.labels, space.setting.classes).to(found)  # (D_n, K)
    counts = member.sum(dim=0)
    return Outcome((member.T @ found / counts.clamp_min(1.0)[:, None], counts > 0))
