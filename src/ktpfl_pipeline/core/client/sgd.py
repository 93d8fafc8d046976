"""Descent on one client's data: batches in a named order, and the steps of a recipe, plain or of torch's optimizers."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.recipe import Recipe, batch_sizes
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, trained


def descend(
    space: Workspace,
    module: nn.Module,
    loss: Callable[[Tensor], Tensor],
    samples: int,
    recipe: Recipe,
    t: int,
    shuffle: torch.Generator,
) -> Outcome[None]:
    """Take a recipe's steps; return the mean loss over the last epoch, () on the device (0 without an epoch).

    The optimizer starts from `Workspace.take_state`, unless this is None; the outcome then has its new state.

    Args:
        space: the workspace of the process.
        module: trained in place. Gradients of the models in an `nn.ModuleList` are clipped separately.
        loss: the mean loss, (), of the samples at the given indices, (b,) below `samples`.
        samples: the number of samples.
        recipe: optimizer, learning rate, batch size and epochs.
        t: the round, which determines the learning rate.
        shuffle: draws a new order of the samples in each epoch; see `batches`.
    """
    parameters, device = trained(module), space.device
    rate = recipe.rate(t, space.setting.rounds)
    start = space.take_state()
    optimizer = None if recipe.plain else make(parameters, recipe, rate, start)
    models = list(module) if isinstance(module, nn.ModuleList) else [module]
    total, counted = torch.zeros((), device=device, dtype=torch.float64), Counter[str]()
    passes, left, seen = recipe.passes(samples), recipe.steps, 0
    for epoch in range(1, passes + 1):
        taken = batches(samples, recipe.batch_size, shuffle, device)[:left]
        left, seen = None if left is None else left - len(taken), sum(map(len, taken))
        for batch in taken:
            value, gradients = gradients_of(loss(batch), parameters)
            if optimizer is None:
                step(parameters, gradients, rate)
            else:
                step_by(optimizer, models, gradients, recipe.clip)
            if epoch == passes:
                total += value * len(batch)
        counted += space.counted(models, seen)
    state = None if optimizer is None or start is None else state_of(optimizer)
    return Outcome(None, total / max(seen, 1), samples=counted, optimizer_state=state)


def gradients_of(loss: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    return loss.detach(), torch.autograd.grad(loss, parameters)


@torch.no_grad()
def step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], learning_rate: float) -> None:
    """Take one step of plain SGD, w ← w - η g, on parameters w in place: `torch.optim.SGD` to the bit.

    Plain SGD has no state. This avoids making a `torch.optim` optimizer: the first one in a process imports torch's
    compiler, which takes about five seconds.
    """
    torch._foreach_sub_([*parameters], [*gradients], alpha=learning_rate)  # one launch for all of them


def batches(samples: int, size: int, shuffle: torch.Generator, device: torch.device | None = None) -> list[Tensor]:
    """Return all indices below `samples` in a fresh order, in batches of `batch_sizes`.

    The order is drawn from `shuffle` on the CPU, and all indices are sent to `device` at once: otherwise each
    step would wait for a GPU.
    """
    order = torch.randperm(samples, generator=shuffle)
    return list(torch.split(order if device is None else sent(order, device), batch_sizes(samples, size)))


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


def step_by(
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
    """Return an optimizer's state by name, ``<position of the parameter>.<torch's name>``, which `make` takes."""
    states = [optimizer.state.get(parameter, {}) for parameter in optimizer.param_groups[0]["params"]]
    return {
        f"{place}.{key}": value for place, own in enumerate(states) for key, value in own.items() if value is not None
    }
