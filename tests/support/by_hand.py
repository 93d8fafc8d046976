"""What a plain re-implementation of a method shares with it: the random draws, and nothing else."""

from collections.abc import Iterator

import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Params


def pixels(samples: LabelledDataset) -> Tensor:
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


def differ(one: Params, other: Params) -> float:
    """Return the largest difference between two models' numbers."""
    return toy.distance({0: dict(one)}, {0: dict(other)})
