"""Client operations for several clients of one architecture in one computation, their tensors stacked client first.

Made for a GPU, which one client's kernels do not fill and whose launches they wait for. Each client has the batches,
the pixels, the steps and the BatchNorm statistics of `operations.py`; what differs is the rounding, and which masks
dropout draws. Inside a phase nothing waits for the device: indices go there once an epoch, losses come back once.

A stacked form is called as ``operation(space, calls)``, `calls` being those of `Executor.run` for clients of one
architecture. They differ in their models and teachers; all other arguments are the first one's.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import batch_norm, operations, sgd
from ktpfl_pipeline.core.client.measures import measures, packed
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import OWN, Workspace
from ktpfl_pipeline.core.setting import Setting, Split
from ktpfl_pipeline.core.training.recipe import Recipe
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params

Calls = Mapping[int, tuple[Any, ...]]
Loss = Callable[[Params, slice, Tensor], Tensor]
"""Returns the mean loss of each client, (m,), for their models, their rows of the stack, and their batches, (m, b)."""


def possible(space: Workspace, calls: Calls, operation: Callable[..., Any]) -> bool:
    """Return whether clients of one architecture can be one computation of an operation.

    vmap has no rule for recurrent layers, and none for estimating the statistics of public samples.
    """
    n, (params, *_) = next(iter(calls.items()))
    module = space.module(n, params)
    if operation is operations.logits and space.setting.distillation.batch_norm == "domain_specific":
        return not batch_norm.layers(module) and not _recurrent(module)
    return not _recurrent(module)


def _recurrent(module: nn.Module) -> bool:
    return any(isinstance(part, nn.RNNBase) for part in module.modules())


class Stack:
    """S models of one architecture as one.

    Attributes:
        tensors: the models' parameters and buffers, (S, ...) each.
        trained: names of the parameters.
    """

    def __init__(self, space: Workspace, calls: Calls, *, training: bool) -> None:
        """Copy the models of `calls`, which are their first arguments."""
        models: list[Params] = [params for params, *_ in calls.values()]
        self._space = space
        self._module: nn.Module = space.module(next(iter(calls)), models[0]).train(training)
        self._reduced = space.reduced
        self.tensors = {name: torch.stack([params[name] for params in models]) for name in models[0]}
        self.trained = [name for name, each in self._module.named_parameters() if each.requires_grad]

    def rows(self, rows: slice) -> Params:
        """Return views of these rows: what is written to them is written to the stack."""
        return {name: tensor[rows].detach() for name, tensor in self.tensors.items()}

    def logits(self, tensors: Params, inputs: Tensor) -> Tensor:
        """Return the logits, (m, b, K), of m models on inputs, (m, b, ...), or (b, ...) the same for all.

        In training mode the running statistics among `tensors` move, in place.
        """
        own = inputs.dim() > self._space.setting.public.dim()
        numbers = self._space.numbers(inputs.flatten(end_dim=1) if own else inputs)
        numbers = numbers.view(*inputs.shape[:2], *numbers.shape[1:]) if own else numbers

        def one(params: Params, numbers: Tensor) -> Tensor:
            with Bfloat16() if self._reduced else nullcontext():
                found: Tensor = functional_call(self._module, dict(params), (numbers,))
            return found

        found: Tensor = vmap(one, in_dims=(0, 0 if own else None), randomness="different")(tensors, numbers)
        return found

    def statistics(self) -> Params:
        """Return the running statistics and counters of BatchNorm among the tensors, (S, ...) each."""
        own = {
            f"{place}.{name}" if place else name
            for place, part in self._module.named_modules()
            if part in batch_norm.layers(self._module)
            for name, _ in part.named_buffers(recurse=False)
        }
        return {name: tensor for name, tensor in self.tensors.items() if name in own}

    def models(self) -> list[Params]:
        """Return the models one by one, each with memory of its own."""
        return [{name: tensor[row].clone() for name, tensor in self.tensors.items()} for row in range(len(self))]

    def __len__(self) -> int:
        """Return S."""
        return len(next(iter(self.tensors.values())))


class Bfloat16(TorchFunctionMode):
    """Takes convolutions and linear layers in bfloat16 where autocast is on, which does not see these inside vmap.

    BatchNorm, which takes bfloat16 inputs and float32 statistics elsewhere, must have all of one kind there.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func`, with bfloat16 arguments where it is one of these."""
        kwargs = kwargs or {}
        if func in (F.conv1d, F.conv2d, F.linear) and torch.is_autocast_enabled(args[0].device.type):
            args = tuple(_halved(value) for value in args)
            kwargs = {name: _halved(value) for name, value in kwargs.items()}
        elif func is F.batch_norm:
            inputs, *rest = args
            return func(inputs.float(), *rest, **kwargs).to(inputs.dtype)
        return func(*args, **kwargs)


def _halved(value: Any) -> Any:
    return value.bfloat16() if isinstance(value, Tensor) else value


def train(space: Workspace, calls: Calls) -> dict[int, Outcome[Params]]:
    """Do what `operations.train` does for each client."""
    _, t, *epochs = next(iter(calls.values()))
    settings = space.setting.training if epochs in ([], [None]) else replace(space.setting.training, epochs=epochs[0])
    inputs, labels, sizes, starts = _samples(space, calls, "train")
    stack = Stack(space, calls, training=True)

    def loss(models: Params, rows: slice, batch: Tensor) -> Tensor:
        places = starts[rows] + batch
        error = partial(F.cross_entropy, label_smoothing=settings.label_smoothing)
        found: Tensor = vmap(error)(stack.logits(models, inputs[places]), labels[places])
        return found

    shuffles = [space.setting.stream("private shuffle", t, n) for n in calls]
    with rng.seeded(rng.derive(space.setting.seed, "stacked dropout", t, *calls), space.device):
        means = descend(stack, loss, sizes, settings, settings.rate(t, space.setting.rounds), shuffles)
    return _outcomes(calls, stack, means, [settings.epochs * size for size in sizes])


def distill(space: Workspace, calls: Calls) -> dict[int, Outcome[Params]]:
    """Do what `operations.distill` does for each client."""
    _, _, public, t = next(iter(calls.values()))
    settings, inputs = space.setting.distillation, space.public(public)
    targets = torch.stack([teacher for _, teacher, *_ in calls.values()]).to(space.device, space.dtype)  # (S, B, K)
    policy = batch_norm.applied(settings.batch_norm, len(inputs))
    stack = Stack(space, calls, training=batch_norm.by_batch(policy))
    private = {name: tensor.clone() for name, tensor in stack.statistics().items()}

    def loss(models: Params, rows: slice, batch: Tensor) -> Tensor:
        target = torch.take_along_dim(targets[rows], batch[:, :, None], dim=1)
        return distillation_losses(stack.logits(models, inputs[batch]), target, settings.temperature)

    shuffles = [space.setting.stream("public shuffle", t, n) for n in calls]
    with rng.seeded(rng.derive(space.setting.seed, "stacked distillation dropout", t, *calls), space.device):
        rate = settings.rate(t, space.setting.rounds)
        means = descend(stack, loss, [len(inputs)] * len(calls), settings, rate, shuffles)
    if batch_norm.keeps_private(policy):
        stack.tensors.update(private)
    return _outcomes(calls, stack, means, [settings.epochs * len(inputs)] * len(calls))


def distillation_losses(logits: Tensor, teachers: Tensor, temperature: float) -> Tensor:
    """Return each client's distillation loss, (m,), of (m, b, K) logits and teachers; vmap has no kl_div."""
    students = F.log_softmax(logits / temperature, dim=2)
    return temperature**2 * F.kl_div(students, teachers, reduction="none").sum(dim=(1, 2)) / logits.shape[1]


def logits(space: Workspace, calls: Calls) -> dict[int, Outcome[Tensor]]:
    """Do what `operations.logits` does for each client."""
    _, public = next(iter(calls.values()))
    return _predictions(space, calls, space.public(public))


def cross_logits(space: Workspace, calls: Calls) -> dict[int, Outcome[Tensor]]:
    """Do what `operations.cross_logits` does for each client."""
    _, inputs = next(iter(calls.values()))
    return _predictions(space, calls, sent(inputs, space.device))


def evaluate(space: Workspace, calls: Calls) -> dict[int, Outcome[Tensor]]:
    """Do what `operations.evaluate` does for each client.

    A client with fewer inputs than another has its last one repeated, which does not count: in eval mode no input
    knows of the others, so that clients need not have equally many.
    """
    _, split = next(iter(calls.values()))
    inputs, labels, numbers, starts = _samples(space, calls, split)
    sizes = sent(torch.tensor(numbers), space.device)[:, None]
    place = torch.arange(max(numbers), device=space.device)
    places = starts + torch.minimum(place, sizes - 1)  # (S, V)
    counts = place < sizes  # (S, V)
    found = predict(space, Stack(space, calls, training=False), lambda part: inputs[places[:, part]], len(place))
    errors = F.cross_entropy(found.transpose(1, 2), labels[places], reduction="none").where(counts, 0.0)
    hits = (found.argmax(dim=2) == labels[places]) & counts
    accuracy, loss = (each.sum(dim=1).double() / sizes[:, 0] for each in (hits, errors))
    results = packed({"accuracy": accuracy, "loss": loss, **measures(found, labels[places], counts)})
    return {n: Outcome(row) for n, row in zip(calls, results, strict=True)}


@torch.inference_mode()  # no wider, as in `operations.predict`
def predict(space: Workspace, stack: Stack, inputs: Callable[[slice], Tensor], number: int) -> Tensor:
    """Return each model's logits in eval mode on a `number` of inputs, (S, number, K).

    `inputs` returns a part of them, all models' or each model's own; see `Stack.logits`.
    """
    size = max(1, space.setting.compute.prediction_batch // len(stack))
    parts = [slice(start, start + size) for start in range(0, number, size)]
    return torch.cat([stack.logits(stack.tensors, inputs(part)) for part in parts], dim=1)


def descend(
    stack: Stack, loss: Loss, sizes: Sequence[int], settings: Recipe, rate: float, shuffles: Sequence[torch.Generator]
) -> Tensor:
    """Run plain SGD on all models of the stack, in place; return each one's mean loss over the last epoch, (S,).

    The models' losses are added up: each model's own is then all that its gradient knows of. Arguments are those of
    `sgd.descend`, with one size (a number of samples) and one shuffling stream for each client; and the round's rate.
    """
    stack._space.graphs.leave("stacked clients", "they are one computation already")
    device = next(iter(stack.tensors.values())).device
    total = torch.zeros(len(stack), device=device, dtype=torch.float64)
    for epoch in range(1, settings.epochs + 1):
        for rows, batch in steps(sizes, settings.batch_size, shuffles, device):
            models = stack.rows(rows)
            parameters = [models[name].requires_grad_() for name in stack.trained]
            values = loss(models, rows, batch)
            gradients = torch.autograd.grad(values.sum(), parameters)
            with torch.no_grad():
                torch._foreach_sub_(parameters, gradients, alpha=rate)
            if epoch == settings.epochs:
                total[rows] += values.detach() * batch.shape[1]
    return total / sent(torch.tensor(sizes), device)


def steps(
    sizes: Sequence[int], batch_size: int, shuffles: Sequence[torch.Generator], device: torch.device
) -> list[tuple[slice, Tensor]]:
    """Return one epoch: rows of the stack and their batches, (m, b) indices on the device, one step after another.

    Each client has the batches of `sgd.batches`. Rows whose batches are equally long go together, and others by
    themselves: filling up the short ones would change BatchNorm's statistics. Neighbours alone are joined, so that
    rows are views and not copies; clients in the order of their sizes make the fewest steps.
    """
    orders = [sgd.batches(size, batch_size, shuffle) for size, shuffle in zip(sizes, shuffles, strict=True)]
    nothing = torch.empty(0, dtype=torch.int64)
    plan = []
    for parts in zip_longest(*orders, fillvalue=nothing):
        for length, group in groupby(range(len(parts)), key=[len(part) for part in parts].__getitem__):
            rows = list(group)
            if length:
                plan.append((slice(rows[0], rows[-1] + 1), torch.stack([parts[row] for row in rows])))
    there = sent(torch.cat([batch.flatten() for _, batch in plan]), device)
    flat = torch.split(there, [batch.numel() for _, batch in plan])
    return [(rows, part.view_as(batch)) for (rows, batch), part in zip(plan, flat, strict=True)]


def _predictions(space: Workspace, calls: Calls, inputs: Tensor) -> dict[int, Outcome[Tensor]]:
    """Return every model's logits on the same inputs."""
    stack = Stack(space, calls, training=False)
    found = predict(space, stack, inputs.__getitem__, len(inputs))
    return {n: Outcome(row) for n, row in zip(calls, found, strict=True)}


def _samples(space: Workspace, calls: Calls, split: Split) -> tuple[Tensor, Tensor, list[int], Tensor]:
    """Return all clients' inputs and labels, how many each has, and where its own begin among them, (S, 1)."""
    splits = [space.split(n, split) for n in calls]
    sizes = [len(own) for own in splits]
    counts = torch.tensor(sizes)
    starts = sent((counts.cumsum(0) - counts)[:, None], space.device)
    return torch.cat([own.inputs for own in splits]), torch.cat([own.labels for own in splits]), sizes, starts


def _outcomes(calls: Calls, stack: Stack, means: Tensor, samples: list[int]) -> dict[int, Outcome[Params]]:
    found = zip(calls, stack.models(), means, samples, strict=True)
    return {n: Outcome(params, mean, samples={OWN: steps}) for n, params, mean, steps in found}


STACKED: dict[Callable[..., Any], Callable[[Workspace, Calls], dict[int, Outcome[Any]]]] = {
    operations.train: train,
    operations.distill: distill,
    operations.logits: logits,
    operations.cross_logits: cross_logits,
    operations.evaluate: evaluate,
}
"""The operations with a stacked form. The others visit one client after another: their steps are a method's own."""


def form_of(operation: Callable[..., Any], setting: Setting) -> Callable[[Workspace, Calls], Any] | None:
    """Return an operation's stacked form; None where it has none, or where a recipe asks for more than plain steps."""
    training, distillation = setting.training, setting.distillation
    fits = {
        operations.train: training.plain and training.class_weights == "none" and not training.augmentation,
        operations.distill: distillation.plain,
    }
    return STACKED.get(operation) if fits.get(operation, True) else None
