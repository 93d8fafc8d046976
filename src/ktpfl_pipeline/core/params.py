"""The weights of one model and of many."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]
"""One model's parameters and buffers by name. Never written in place: whoever changes a model makes a new one."""

Models = dict[int, Params]
"""Models by client id."""

Prototypes = dict[str, Params]
"""Models of the server, one by architecture."""


def params_of(module: nn.Module) -> Params:
    """Return a copy of the module's parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def select(models: Models, clients: Iterable[int]) -> Models:
    """Return the models of `clients` only, in their order."""
    return {n: models[n] for n in clients}


def average(models: Sequence[Params], weights: Tensor) -> Params:
    """Return the weighted average of models of one architecture, summed in float64.

    Running means and variances of BatchNorm are averaged like parameters; its counters, being whole numbers, are those
    of the first model.

    Args:
        models: n models.
        weights: (n,) numbers that sum to one.
    """

    def mixed(name: str, first: Tensor) -> Tensor:
        if not first.is_floating_point():
            return first.clone()
        stacked = torch.stack([model[name].double() for model in models])
        return (weights.to(stacked).view(-1, *[1] * first.dim()) * stacked).sum(dim=0).to(first.dtype)

    return {name: mixed(name, first) for name, first in models[0].items()}


def wire_bytes(params: Params) -> int:
    """Return the bytes of a model on the wire: parameters and float buffers as float32, no counters."""
    return 4 * sum(tensor.numel() for tensor in params.values() if tensor.is_floating_point())
