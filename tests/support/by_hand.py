"""Code for plain re-implementations of methods, which share only their random draws with the package."""

from collections.abc import Iterator

import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, cross_entropy, linear

from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Params


def pixels(samples: LabeledDataset) -> Tensor:
    """Return images as numbers from -1 to 1, in float64."""
    return samples.inputs.double() / 127.5 - 1


def module(fed: Federation, n: int, params: Params) -> nn.Module:
    """Return client n's model in training mode, in float64."""
    made = toy.build(fed.by_id[n].architecture).double().train()
    made.load_state_dict(params)
    return made


def batches(fed: Federation, n: int, t: int) -> Iterator[Tensor]:
    """Yield the indices of each step of client n's local training in round t."""
    shuffle = fed.stream("private shuffle", t, n)
    for _ in range(fed.training.epochs):
        yield from sgd.batches(len(fed.by_id[n].train), fed.training.batch_size, shuffle)


def descend(parameters: list[Tensor], loss: Tensor, rate: float) -> None:
    """Take one step of plain SGD."""
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(rate * gradient)


def pooled(features: Tensor, dimension: int) -> Tensor:
    """Return features, (b, f), averaged to `dimension` numbers, (b, F), times √(f/F)."""
    return adaptive_avg_pool1d(features, dimension) * (features.shape[1] / dimension) ** 0.5


def train_with_head(
    fed: Federation, n: int, t: int, params: Params, head: Params, features: int
) -> tuple[nn.Module, Tensor, Tensor]:
    """Return client n's extractor, and the weight and bias of the common head, after training both in a round."""
    trained, samples = module(fed, n, params), fed.by_id[n].train
    extractor = trained[:-1]  # type: ignore[index]
    weight, bias = (head[name].clone().requires_grad_() for name in ("weight", "bias"))
    for batch in batches(fed, n, t):
        feature = pooled(extractor(pixels(samples)[batch]), features)
        loss = cross_entropy(linear(feature, weight, bias), samples.labels[batch])
        descend([*extractor.parameters(), weight, bias], loss, fed.training.learning_rate)
    return extractor, weight, bias


def differ(one: Params, other: Params) -> float:
    """Return the largest difference between the tensors of two models."""
    return toy.distance({0: dict(one)}, {0: dict(other)})


def public_pixels(fed: Federation, t: int) -> Tensor:
    """Return round t's public images as numbers from -1 to 1, in float64."""
    return fed.public[fed.public_batch(t)].double() / 127.5 - 1


def public_batches(fed: Federation, n: int | None, t: int) -> Iterator[Tensor]:
    """Yield the places in round t's public batch of each step on it, of client n; None is an order of all clients."""
    shuffle = fed.stream("public shuffle", t, *([] if n is None else [n]))
    for _ in range(fed.distillation.epochs):
        yield from sgd.batches(len(fed.public_batch(t)), fed.distillation.batch_size, shuffle)
