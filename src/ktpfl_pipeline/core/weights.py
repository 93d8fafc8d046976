"""The weights of one model and of many."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.transfer import sent

Module = TypeVar("Module", bound=nn.Module)
Params = Mapping[str, Tensor]
"""One model's parameters and buffers by name, as `state_of` says. Never written in place: a change makes a new one."""

Models = dict[int, Params]
"""Models by client id."""

Prototypes = dict[str, Params]
"""Models of the server, one by architecture."""


class Handle(Mapping[str, Tensor]):
    """A model that lives elsewhere: it comes here when a tensor of it is looked at, and then stays."""

    shapes: dict[str, Tensor]  #: its tensors by name, as shapes and dtypes without numbers (torch's device ``meta``)

    @abstractmethod
    def open(self) -> dict[str, Tensor]:
        """Return the model, the same tensors every time; LostError if it is gone with whoever had it."""

    def kept(self) -> Any:
        """Return what a stored state holds: the model, or this handle if the model must stay remote."""
        return self.open()

    def stored(self) -> Any:
        """Return what a checkpoint holds: the model, or plain values that identify it if the model must stay remote."""
        return self.open()

    def __getitem__(self, name: str) -> Tensor:
        return self.open()[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, which are stored locally."""
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


kept: Callable[[Handle], Any] = methodcaller("kept")
stored: Callable[[Handle], Any] = methodcaller("stored")


def opened(value: Any, of: Callable[[Handle], Any] = kept) -> Any:
    """Return a method's state, or a part of it, with `of` of every handle in its place: by default the model here."""
    if isinstance(value, Handle):
        return of(value)
    if isinstance(value, dict):
        return {key: opened(part, of) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(opened(part, of) for part in value)
    return value


def loaded(make: Callable[[], Module], params: Params) -> Module:
    """Return a new module with these weights, on their device and of their dtype; nothing is drawn and nothing waits.

    All that the module has must be among `params`.
    """
    first = next(iter(params.values()))
    with torch.device("meta"):
        module = make()
    module = module.to(first.dtype).to_empty(device=first.device)
    module.load_state_dict(params)
    return module


def params_of(module: nn.Module) -> Params:
    """Return a copy of what `state_of` returns, each tensor contiguous."""
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in state_of(module).items()
    }


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's tensors that training changes: `state_dict` with each tensor once, and without frozen ones.

    A tensor with several names (tied weights) has the first of them only, so that vectors, averages and bytes have it
    once, and so that nothing writes an old value over a new one.
    """
    left_out = {*tied_names(module), *frozen_names(module)}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in left_out}


@torch.no_grad()
def load(module: nn.Module, own: Params, params: Params) -> None:
    """Write `params` into a module's own tensors, `own` by `state_of`, in place.

    On a CPU this takes a tenth of the time of `load_state_dict`, which raises RuntimeError if names or shapes differ.
    """
    fits = params.keys() == own.keys() and all(
        params[name].shape == tensor.shape and params[name].device.type == tensor.device.type == "cpu"
        for name, tensor in own.items()
    )
    if fits:
        torch._foreach_copy_([*own.values()], [params[name] for name in own])
        return
    rest = {name: tensor for name, tensor in module.state_dict().items() if name not in own}
    tied = {name: params[first] for name, first in tied_names(module).items() if first in params}
    module.load_state_dict({**rest, **params, **tied})


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Return the module's parameters that are trained, each once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def tied_names(module: nn.Module) -> dict[str, str]:
    """Return the further names of parameters and buffers that have several, each with the first name."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            if (known := first.setdefault(id(tensor), name)) != name:
                found[name] = known
    return found


def frozen_names(module: nn.Module) -> list[str]:
    """Return the names of what stays as it is: frozen parameters, and buffers of layers that have no others.

    So BatchNorm in a frozen backbone keeps its running statistics.
    """
    found = []
    for prefix, part in module.named_modules():
        names = [name for name, parameter in part.named_parameters(recurse=False) if not parameter.requires_grad]
        if is_frozen(part):
            names += [name for name, _ in part.named_buffers(recurse=False)]
        found += [f"{prefix}.{name}" if prefix else name for name in names]
    return found


def is_frozen(layer: nn.Module) -> bool:
    """Return whether a layer has parameters of its own, and all of them are frozen."""
    own = list(layer.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def select(models: Models, clients: Iterable[int]) -> Models:
    """Return the models of `clients` only, in their order."""
    return {n: models[n] for n in clients}


def vector_of(params: Params, names: Sequence[str]) -> Tensor:
    """Return the tensors `names` of a model one after another, (d,)."""
    return torch.cat([params[name].flatten() for name in names])


def matrix_of(models: Sequence[Params], names: Sequence[str]) -> Tensor:
    """Return the tensors `names` of each model as a row, (n, d): one model at a time, to take no memory besides it."""
    first = vector_of(models[0], names)
    rows = first.new_empty(len(models), len(first))
    for row, params in zip(rows, models, strict=True):
        row.copy_(vector_of(params, names))
    return rows


def with_vector(params: Params, names: Sequence[str], vector: Tensor) -> Params:
    """Return the model with the tensors `names` taken from a vector, (d,), in this order, and all others kept."""
    parts = torch.split(vector, [params[name].numel() for name in names])
    return {**params, **{name: part.view_as(params[name]) for name, part in zip(names, parts, strict=True)}}


def mix(models: Sequence[Params], weights: Tensor) -> list[Params]:
    """Return r linear combinations of n models of one architecture with `weights`, (r, n), summed in float64.

    Running means and variances of BatchNorm are combined like parameters; of its counters, being integers, the
    largest among the models that count is taken.
    """
    mixed: list[dict[str, Tensor]] = [{} for _ in range(len(weights))]
    weights = sent(weights.double(), next(iter(models[0].values()), weights).device)
    counts = weights != 0  # (r, n)
    for name, first in models[0].items():
        if first.is_floating_point():
            rows = (weights @ _rows(models, name)).to(first.dtype)  # (r, numel)
        else:
            counters = torch.stack([model[name].flatten() for model in models])  # (n, numel)
            rows = torch.where(counts[..., None], counters, counters.amin(dim=0)).amax(dim=1)
        for params, value in zip(mixed, rows.view(-1, *first.shape), strict=True):
            params[name] = value
    return list[Params](mixed)


def average(models: Sequence[Params], weights: Tensor | None = None) -> Params:
    """Return the average of models of one architecture; `weights`, (n,), sum to one, and None is 1/n. See `mix`."""
    weights = torch.full((len(models),), 1.0 / len(models), dtype=torch.float64) if weights is None else weights
    return mix(models, weights[None])[0]


def gram(models: Sequence[Params], names: Sequence[str]) -> Tensor:
    """Return the inner products of n models from their common mean as vectors of the tensors `names`, (n, n) float64.

    Distances follow from it, ‖w_i - w_j‖² = G_ii + G_jj - 2 G_ij, and nothing cancels: models that were trained from
    one start are close together and far from zero.
    """
    total = torch.zeros(len(models), len(models), dtype=torch.float64, device=next(iter(models[0].values())).device)
    for name in names:
        rows = _rows(models, name)
        rows = rows - rows.mean(dim=0)
        total += rows @ rows.T
    return total


def squared_distances(products: Tensor) -> Tensor:
    """Return ‖w_i - w_j‖² of the models of a Gram matrix, (n, n)."""
    own = products.diagonal()
    return (own[:, None] + own[None, :] - 2.0 * products).clamp_min(0.0).fill_diagonal_(0.0)


def _rows(models: Sequence[Params], name: str) -> Tensor:
    return torch.stack([model[name].flatten() for model in models]).double()


def wire_bytes(params: Params) -> int:
    """Return the bytes of a model on the wire: parameters and float buffers as float32, no counters."""
    tensors = params.shapes if isinstance(params, Handle) else params
    return 4 * sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
