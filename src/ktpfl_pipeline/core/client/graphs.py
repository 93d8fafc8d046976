"""CUDA graphs: a forward and a backward pass, hundreds of launches, recorded once and replayed as one launch.

A graph repeats kernels on the addresses that it was captured with. So what it holds is the gradient of a batch: models
keep their addresses in a workspace, and the batch is copied into buffers that stay. The step itself is outside, one
launch or few for all parameters: learning rates, momenta and a method's own rule are free to change. There is one
graph for each loss, architecture, mode of BatchNorm and shape of a batch; all share one pool of memory.

NVIDIA's and torch's rules for captures: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

Tensors = tuple[Tensor, ...]
DEVICE = "cuda"
"""Whose kernels a graph holds."""
WARM_UP = 3
"""Gradients that are taken and thrown away before a capture, as torch does: libraries allocate in their first calls."""
LIMIT = 64
"""Graphs of one workspace; each keeps a batch and the gradients of a model."""


@dataclass(frozen=True)
class Objective:
    """The mean loss of a batch, in two parts: what a graph cannot hold, `read`, and what it holds, `loss`.

    Attributes:
        loss: called as ``loss(*constants, *tensors)``; knows nothing but its arguments, waits for nothing.
        constants: modules, which are used where they are, and plain values: with others it is another graph.
        read: returns the tensors that change with the batch, on the device, from its indices, (b,).
    """

    loss: Callable[..., Tensor]
    constants: tuple[Hashable, ...]
    read: Callable[[Tensor], Tensors]

    def __post_init__(self) -> None:
        """Check that nothing else gets into the loss, as a graph would go on using the first client's."""
        if getattr(self.loss, "__closure__", None):
            raise TypeError(f"{self.loss.__qualname__} is a closure; give an objective what it needs as arguments.")

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the mean loss of the samples at the indices `batch`."""
        return self.at(self.read(batch))

    def at(self, tensors: Tensors) -> Tensor:
        """Return the mean loss of what was read."""
        return self.loss(*self.constants, *tensors)

    def modules(self) -> list[nn.Module]:
        """Return the modules among the constants."""
        return [part for part in self.constants if isinstance(part, nn.Module)]


class Graph:
    """The gradient of an objective, captured."""

    def __init__(self, objective: Objective, tensors: Tensors, parameters: Sequence[Tensor], pool: Any) -> None:
        """Warm up on a side stream, and capture; buffers of modules and random numbers stay as they were.

        Raises:
            RuntimeError: if something in it cannot be captured.
        """
        self._tensors = tuple(tensor.clone() for tensor in tensors)
        self._graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with kept(objective.modules(), tensors[0].device):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    gradients(objective.at(self._tensors), parameters)
            torch.cuda.current_stream().wait_stream(side)
            before = torch.get_rng_state()
            with torch.cuda.graph(self._graph, pool=pool):
                self._value, self._gradients = gradients(objective.at(self._tensors), parameters)
            if not torch.equal(before, torch.get_rng_state()):
                raise RuntimeError("it draws on the CPU, which a graph would not repeat")

    def replay(self, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """Return the mean loss and the gradients of what was read; the gradients last until any graph's next replay."""
        for static, tensor in zip(self._tensors, tensors, strict=True):
            static.copy_(tensor, non_blocking=True)
        self._graph.replay()
        return self._value.clone(), self._gradients


class Graphs:
    """The graphs of one workspace.

    Attributes:
        taken: how many gradients were taken how, ``replayed``, ``short`` or ``eager``, by what was trained; empty where
            graphs are off.
    """

    def __init__(self, asked: bool, device: torch.device) -> None:
        """Start with none; without a GPU there will be none."""
        self._on = asked and device.type == DEVICE
        self._graphs: dict[Hashable, Graph | None] = {}
        self._pool: Any = None
        self.taken: Counter[tuple[str, str]] = Counter()
        if asked and not self._on:
            say(f"compute.graphs has no effect on {device.type}: graphs are CUDA's, for compute.device auto or cuda.")

    def __len__(self) -> int:
        return sum(graph is not None for graph in self._graphs.values())

    def gradients(
        self, loss: Callable[[Tensor], Tensor], batch: Tensor, parameters: Sequence[Tensor], size: int
    ) -> tuple[Tensor, Tensors]:
        """Return the mean loss of a batch and its gradients, by a graph where there can be one.

        Args:
            loss: the mean loss of the samples at the given indices; an `Objective` where a graph can hold it.
            batch: (b,) indices.
            parameters: of which the gradients are.
            size: of a full batch; others are taken eagerly.

        Returns:
            The loss, detached, and gradients, which the next call overwrites.
        """
        if not self._on:
            return gradients(loss(batch), parameters)
        if not isinstance(loss, Objective):
            self.leave(name_of(loss), "its loss is no Objective (docs/how_to/graphs.md has the reasons)")
            return gradients(loss(batch), parameters)
        tensors, name = loss.read(batch), name_of(loss.loss)
        graph = self._graph(loss, tensors, parameters) if len(batch) == size else None
        self.taken[name, "replayed" if graph else "short" if len(batch) != size else "eager"] += 1
        return graph.replay(tensors) if graph else gradients(loss.at(tensors), parameters)

    def leave(self, what: str, reason: str) -> None:
        """Count one eager gradient of `what`, and say why the first time, where graphs are on."""
        if self._on:
            self.taken[what, "eager"] += 1
            say(f"compute.graphs has no effect on {what}: {reason}.")

    def _graph(self, objective: Objective, tensors: Tensors, parameters: Sequence[Tensor]) -> Graph | None:
        """Return the objective's graph for such tensors, captured the first time; None where none can be."""
        modes = [module.training for module in objective.modules()]
        kinds = [(tensor.shape, tensor.dtype, tensor.stride()) for tensor in tensors]
        key = (objective.loss, objective.constants, *modes, *kinds, *map(id, parameters))
        if key not in self._graphs:
            self._graphs[key] = self._captured(objective, tensors, parameters)
        return self._graphs[key]

    def _captured(self, objective: Objective, tensors: Tensors, parameters: Sequence[Tensor]) -> Graph | None:
        name = name_of(objective.loss)
        if len(self) >= LIMIT:
            say(f"compute.graphs has no effect on more of {name}: there are {LIMIT} graphs already.")
            return None
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            return Graph(objective, tensors, parameters, self._pool)
        except RuntimeError as error:
            say(f"compute.graphs has no effect on {name}, which cannot be captured: {str(error).splitlines()[0]}.")
            return None


def gradients(value: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensors]:
    """Return a loss, detached, and its gradients."""
    return value.detach(), torch.autograd.grad(value, parameters)


@contextmanager
def kept(modules: Iterable[nn.Module], device: torch.device) -> Iterator[None]:
    """Leave the modules' buffers, and torch's global generators, as they were before the block."""
    buffers = [(buffer, buffer.clone()) for module in modules for buffer in module.buffers()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)


@cache
def say(line: str) -> None:
    """Log a line, once in a process."""
    logger.warning("%s", line)


def name_of(function: Callable[..., Any]) -> str:
    """Return what trains by a function, ``fml.train_pair``: the function in which it is made, or itself."""
    name = getattr(function, "__qualname__", type(function).__name__).partition(".<locals>")[0]
    return f"{function.__module__.rpartition('.')[2]}.{name}"
