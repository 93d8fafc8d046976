"""A model as an extractor and a head: the head is the layer that makes the logits, and its input is the feature.

Features of different architectures, f numbers each, are brought to a common dimension F: neighbors are averaged and
multiplied by √(f/F), so that the norm of features does not change if neighbors are equal. Without this factor wide
features would shrink, and a common head would learn them slowly. The pooling is a matrix P, (F, f); its rows are
orthonormal if F divides f.

A common head (W, b) on pooled features equals the layer (W P, b) of an architecture, so a model can store it as its own
head. But one step on (W P, b) changes logits in proportion to ‖x‖² of the features x, and one step on (W, b) in
proportion to ‖P x‖². So the parameters (W, b) are trained, in rounds and in adaptation (`train_common_head`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core.client.operations import predict, predicting
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.joint import Pool, pooled
from ktpfl_pipeline.core.weights import Params, params_of

NEVER = -1e5
"""The logit of a class without a prototype, lower than that of all others."""


@contextmanager
def features(head: nn.Module, dimension: int | None = None) -> Iterator[list[Tensor]]:
    """Yield a list to which every forward pass of a model inside the block appends its features, (b, F).

    F is `dimension`, or without one the model's own number of features.
    `head` is the layer that makes the model's logits; features have the dtype of its weights. If the head is not a
    linear layer, such as a convolution, features are averaged over positions.
    """
    parts: list[Tensor] = []
    dtype = next(head.parameters()).dtype

    def see(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        whole = isinstance(head, nn.Linear) or inputs[0].dim() < 3
        found = (inputs[0].flatten(1) if whole else inputs[0].flatten(2).mean(dim=2)).to(dtype)
        parts.append(found if dimension is None else pooled(found, dimension))

    with head.register_forward_pre_hook(see):
        yield parts


def seen(space: Workspace, n: int, module: nn.Module, inputs: Tensor, dimension: int | None = None) -> Tensor:
    """Return the `features`, (M, F), of raw inputs, (M, ...), in client n's `module` in eval mode."""
    with features(space.head(n, module)[1], dimension) as parts:
        predict(space, module, inputs)
    return torch.cat(parts)


def seen_of_public(space: Workspace, n: int, params: Params, batch: Tensor) -> Tensor:
    """Return the features, (B, f), of public samples in client n's model, with the BatchNorm of predictions."""
    with predicting(space, n, params, batch) as (module, inputs):
        return seen(space, n, module, inputs)


@contextmanager
def replaced_head(module: nn.Module, name: str, common: nn.Linear) -> Iterator[None]:
    """Replace the model's own head, whose name is `name`, by a common head on pooled features inside the block.

    The common head is a linear layer with weights (K, F). In the block, its parameters belong to the module, and the
    parameters of the own head do not.
    """
    own = module.get_submodule(name)
    module.set_submodule(name, nn.Sequential(Pool(common.in_features), common))
    try:
        yield
    finally:
        module.set_submodule(name, own)


def fitted(params: Params, name: str, head: Params) -> Params:
    """Return a model whose own head, with the name `name`, is replaced by (W P, b) of the common `head` (W, b)."""
    own = params[f"{name}.weight"]  # (K, f)
    everything = torch.eye(own.shape[1], device=own.device, dtype=own.dtype)
    pooling = pooled(everything, head["weight"].shape[1])  # (f, F), P transposed
    return {**params, f"{name}.weight": head["weight"] @ pooling.T, f"{name}.bias": head["bias"]}


def with_prototypes(
    space: Workspace, n: int, params: Params, prototypes: Tensor, known: Tensor, own: bool
) -> Outcome[Params]:
    """Return client n's model with a head that classifies by the nearest prototype of the pooled features P x.

    The logit of class k is -‖P x - q_k‖² + ‖P x‖², which is linear in x; the second term is the same for all classes.
    A class without a prototype is never the nearest. Without any prototype the model keeps its own head.

    Args:
        prototypes: q, (K, F).
        known: (K,) bool, which classes have a prototype.
        own: whether only classes count of which the client has training samples.
    """
    name = space.setting.head(space.architecture(n), "biased").name
    q, there = prototypes.to(params[f"{name}.weight"]), known.to(space.device)
    if own:
        there = there & F.one_hot(space.split(n, "train").labels, len(q)).any(dim=0)
    head = {"weight": 2.0 * q * there[:, None], "bias": torch.where(there, -q.square().sum(dim=1), NEVER)}
    made = fitted(params, name, head)
    heads = {key: torch.where(there.any(), made[key], params[key]) for key in (f"{name}.weight", f"{name}.bias")}
    return Outcome({**params, **heads})


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
    """Train client n's extractor and the common `head` on the client's cross-entropy for E epochs, or `epochs`.

    The model's own head is not trained. The outcome has the model with the trained common head, and that head.

    Args:
        head: the common head, ``weight`` (K, F) and ``bias`` (K,).
        weight: the weight of the cross-entropy on generated features in the loss.
        generated: yields (b, F) generated features and their classes, (b,), once per batch; None means no such loss.
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
    """Return each class's mean feature over client n's training samples, (K, F) float64, and which classes it has.

    The latter are (K,) bool; the mean feature of any other class is zero. The model is in eval mode, and `dimension` is
    F. The numbers of samples are not returned, because no method needs them.
    """
    samples = space.split(n, "train")
    found = seen(space, n, space.module(n, params), samples.inputs, dimension).double()  # (D_n, F)
    member = F.one_hot(samples.labels, space.setting.classes).to(found)  # (D_n, K)
    counts = member.sum(dim=0)
    return Outcome((member.T @ found / counts.clamp_min(1.0)[:, None], counts > 0))
