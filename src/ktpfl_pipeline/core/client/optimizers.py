"""torch's optimizers for a recipe, and their state as tensors by name, which may be kept between rounds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.weights import Params


def make(
    parameters: Sequence[nn.Parameter], recipe: Recipe, rate: float, state: Params | None
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer at a learning rate, with the `state` of an earlier optimizer if given."""
    given: dict[str, Any] = {"lr": rate, "weight_decay": recipe.weight_decay}
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, **given, momentum=recipe.momentum, nesterov=recipe.nesterov)
    else:
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer](parameters, **given)
    for name, tensor in (state or {}).items():
        place, _, key = name.partition(".")
        own = tensor.cpu() if key == "step" else tensor  # torch keeps the step count on the CPU
        optimizer.state[parameters[int(place)]][key] = own.clone()
    return optimizer


def step(
    optimizer: torch.optim.Optimizer, modules: Sequence[nn.Module], gradients: Sequence[Tensor], clip: float | None
) -> None:
    """Take one step with the given gradients; the gradient norm of each module is first clipped to `clip`, if any."""
    for parameter, gradient in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
        parameter.grad = gradient if clip is None else gradient.clone()  # two parameters may share a gradient
    if clip is not None:
        for module in modules:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()


def state_of(optimizer: torch.optim.Optimizer) -> Params:
    """Return an optimizer's state by name, ``<position of the parameter>.<torch's name>``."""
    states = [optimizer.state.get(parameter, {}) for parameter in optimizer.param_groups[0]["params"]]
    return {
        f"{place}.{key}": value for place, own in enumerate(states) for key, value in own.items() if value is not None
    }
