"""Weights of models: reading, writing, and combining them."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.transfer import sent

BLOCK = 2**20
"""The largest number of weights of several models that are in float64 at a time on a CPU, 8 MB."""
Module = TypeVar("Module", bound=nn.Module)
Params = Mapping[str, Tensor]
"""One model's parameters and buffers by name, as `state_of` returns them. Tensors are never written in place."""

Models = dict[int, Params]
"""Models by client id."""

Prototypes = dict[str, Params]
"""One model for each architecture, by the architecture's name."""


def gist(tensor: Tensor) -> str:
    """Return two numbers of five digits that tell values of a tensor apart, and are equal for values equal up to 1e-7.

    They are the norm, and the projection of the normalized values on fixed numbers.
    """
    values = tensor.detach().flatten().double()
    norm, fixed = float(values.norm()), torch.cos(torch.arange(1, len(values) + 1, dtype=torch.float64))
    return f"{norm:.5g} {round(float(values @ fixed) / (norm or 1.0), 5) + 0.0}"


class Handle(Mapping[str, Tensor]):
    """A model whose tensors are not in this process yet. Reading a tensor fetches the whole model, once."""

    shapes: dict[str, Tensor]  #: shapes and dtypes of the tensors by name, without values (torch's device ``meta``)

    @abstractmethod
    def open(self) -> dict[str, Tensor]:
        """Return the model; repeated calls return the same tensors. Raises LostError if the model was lost."""

    def kept(self) -> Any:
        """Return the value for a state that is kept: the model, or this handle if the model must stay remote."""
        return self.open()

    def stored(self) -> Any:
        """Return the value for a checkpoint: the model, or plain values that identify it if it must stay remote."""
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
    """Return `value`, a method's state or a part of it, with every handle replaced by ``of(handle)``.

    `of` is `kept` (the default) or `stored`.
    """
    if isinstance(value, Handle):
        return of(value)
    if isinstance(value, dict):
        return {key: opened(part, of) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(opened(part, of) for part in value)
    return value


def loaded(make: Callable[[], Module], params: Params) -> Module:
    """Return a new module with the weights `params`, on the device and with the dtype of the first of them.

    No random number is drawn, and the host does not wait for the device. `params` must have every parameter and buffer
    of the module; otherwise torch raises RuntimeError.
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
    """Return the module's tensors that training changes: its `state_dict` with each tensor once, without frozen ones.

    A tensor with several names (tied weights) is listed under the first name only. So vectors, averages and byte counts
    contain it once, and loading does not overwrite its new value by an old one.
    """
    left_out = {*tied_names(module), *frozen_names(module)}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in left_out}


@torch.no_grad()
def load(module: nn.Module, own: Params, params: Params) -> None:
    """Write the values of `params` into a module in place. `own` are the module's tensors, as `state_of` returns them.

    If names and shapes match and all tensors are on the CPU, this takes a tenth of the time of `load_state_dict`.
    Otherwise it calls `load_state_dict`, which raises RuntimeError if names or shapes do not match.
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
    """Return the module's parameters that require a gradient, each once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def trained_outside(module: nn.Module, part: nn.Module) -> nn.ParameterList:
    """Return the module's trained parameters that do not belong to one of its parts, as a module to train."""
    inside = {id(parameter) for parameter in part.parameters()}
    return nn.ParameterList(parameter for parameter in trained(module) if id(parameter) not in inside)


def tied_names(module: nn.Module) -> dict[str, str]:
    """Return the names of parameters and buffers that share the tensor of an earlier name, each with that name."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            if (known := first.setdefault(id(tensor), name)) != name:
                found[name] = known
    return found


def frozen_names(module: nn.Module) -> list[str]:
    """Return the names of the tensors that training does not change.

    These are the frozen parameters, and the buffers of layers whose parameters are all frozen. So BatchNorm in a frozen
    backbone keeps its running statistics.
    """
    found = []
    for prefix, part in module.named_modules():
        names = [name for name, parameter in part.named_parameters(recurse=False) if not parameter.requires_grad]
        if is_frozen(part):
            names += [name for name, _ in part.named_buffers(recurse=False)]
        found += [f"{prefix}.{name}" if prefix else name for name in names]
    return found


def is_frozen(layer: nn.Module) -> bool:
    """Return whether a layer has parameters of its own and all of these are frozen."""
    own = list(layer.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def select(models: Models, clients: Iterable[int]) -> Models:
    """Return the models of `clients`, in the order of `clients`."""
    return {n: models[n] for n in clients}


def vector_of(params: Params, names: Sequence[str]) -> Tensor:
    """Return the tensors of a model with these names as one vector, (d,), in the order of `names`."""
    return torch.cat([params[name].flatten() for name in names])


def matrix_of(models: Sequence[Params], names: Sequence[str]) -> Tensor:
    """Return `vector_of` of n models as rows, (n, d). Models are copied one by one, so that memory is not doubled."""
    first = vector_of(models[0], names)
    rows = first.new_empty(len(models), len(first))
    for row, params in zip(rows, models, strict=True):
        row.copy_(vector_of(params, names))
    return rows


def with_vector(params: Params, names: Sequence[str], vector: Tensor) -> Params:
    """Return the model with the tensors `names` replaced by parts of a vector, (d,), in the order of `names`."""
    parts = torch.split(vector, [params[name].numel() for name in names])
    return {**params, **{name: part.view_as(params[name]) for name, part in zip(names, parts, strict=True)}}


def mix(models: Sequence[Params], weights: Tensor) -> list[Params]:
    """Return r linear combinations of n models of one architecture; row r of `weights`, (r, n), has the coefficients.

    Sums are in float64; results have the dtypes of the models. Running means and variances of BatchNorm are combined
    like parameters. An integer tensor, such as BatchNorm's counter, gets the largest value among the models whose
    coefficient is not zero.
    """
    mixed: list[dict[str, Tensor]] = [{} for _ in range(len(weights))]
    weights = sent(weights.double(), next(iter(models[0].values()), weights).device)
    counts = weights != 0  # (r, n)
    for name, first in models[0].items():
        if first.is_floating_point():
            parts = [(weights @ block).to(first.dtype) for block in _blocks(models, name)]  # (r, m) each
            rows = torch.cat(parts, dim=1)  # (r, numel)
        else:
            counters = torch.stack([model[name].flatten() for model in models])  # (n, numel)
            rows = torch.where(counts[..., None], counters, counters.amin(dim=0)).amax(dim=1)
        for params, value in zip(mixed, rows.view(-1, *first.shape), strict=True):
            params[name] = value
    return list[Params](mixed)


def average(models: Sequence[Params], weights: Tensor | None = None) -> Params:
    """Return the weighted average of n models by `mix`; `weights`, (n,), sum to one, and None means 1/n for each."""
    weights = torch.full((len(models),), 1.0 / len(models), dtype=torch.float64) if weights is None else weights
    return mix(models, weights[None])[0]


def gram(models: Sequence[Params], names: Sequence[str]) -> Tensor:
    """Return the Gram matrix G of n models after their mean is subtracted, (n, n) float64.

    A model is the vector of its tensors `names`. Squared distances are ‖w_i - w_j‖² = G_ii + G_jj - 2 G_ij. Subtracting
    the mean avoids cancellation, because models trained from the same initial weights are close to each other and far
    from zero.
    """
    total = torch.zeros(len(models), len(models), dtype=torch.float64, device=next(iter(models[0].values())).device)
    for block in (block for name in names for block in _blocks(models, name)):
        rows = block - block.mean(dim=0)
        total += rows @ rows.T
    return total


def squared_distances(products: Tensor) -> Tensor:
    """Return the squared distances ‖w_i - w_j‖², (n, n), from the Gram matrix of `gram`, (n, n)."""
    own = products.diagonal()
    return (own[:, None] + own[None, :] - 2.0 * products).clamp_min(0.0).fill_diagonal_(0.0)


def _blocks(models: Sequence[Params], name: str) -> Iterator[Tensor]:
    """Yield a tensor of n models as float64 rows, (n, m), in blocks of at most `BLOCK` numbers; whole on a GPU.

    Blocks share memory: a CPU takes longer to get new memory from the system than to read the models.
    """
    flat = [model[name].flatten() for model in models]
    width = max(1, BLOCK // len(flat))
    if flat[0].device.type != "cpu" or len(flat[0]) <= width:
        yield torch.stack(flat).double()
        return
    given, rows = flat[0].new_empty(len(flat), width), flat[0].new_empty(len(flat), width, dtype=torch.float64)
    for start in range(0, len(flat[0]), width):
        parts = [each[start : start + width] for each in flat]
        size = len(parts[0])
        yield rows[:, :size].copy_(torch.stack(parts, out=given if size == width else None))


def wire_bytes(params: Params) -> int:
    """Return the bytes of a model as it is sent: floating-point tensors as float32, and no integer counters."""
    tensors = params.shapes if isinstance(params, Handle) else params
    return 4 * sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
