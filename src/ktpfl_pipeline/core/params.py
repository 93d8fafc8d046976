"""The weights of one model and of many."""

from collections.abc import Iterable

from torch import Tensor, nn

Params = dict[str, Tensor]
"""One model's parameters and buffers by name. Never written in place: whoever changes a model makes a new one."""

Models = dict[int, Params]
"""Models by client id."""


def params_of(module: nn.Module) -> Params:
    """Return a copy of the module's parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def select(models: Models, clients: Iterable[int]) -> Models:
    """Return the models of `clients` only, in their order."""
    return {n: models[n] for n in clients}
