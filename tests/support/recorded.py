"""CUDA graphs without CUDA: operations are recorded with their tensors, and replayed in place on the same tensors.

It is stricter than a GPU where a mistake would be a wrong number there. What a capture computes is not there after it:
results are NaN, and what was written in place, and the random numbers, are as they were. A replay knows the recorded
tensors only, and makes NaN of what the other graphs of its pool returned. What waits for the device cannot be captured,
nor what was not warmed up on a side stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pretend
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ktpfl_pipeline.core.client import graphs


class Stream:
    """Stands for `torch.cuda.Stream`."""

    current: "Stream"
    warm = False  # whether anything ran on a side stream since the last capture

    def wait_stream(self, other: "Stream") -> None:
        assert other is not self


Stream.current = Stream()


@contextmanager
def on(stream: Stream) -> Iterator[None]:
    """Stand for `torch.cuda.stream`."""
    before, Stream.current, Stream.warm = Stream.current, stream, True
    try:
        yield
    finally:
        Stream.current = before


class CUDAGraph:
    """Stands for torch's: operations with their arguments and results, in their order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.pool: list[CUDAGraph] = []

    def results(self) -> Iterator[Tensor]:
        """Yield what the operations returned that is nobody else's memory."""
        for func, _, _, found in self.calls:
            fresh = [result.alias_info is None for result in func._schema.returns]
            for part, own in zip(found if len(fresh) > 1 else [found], fresh, strict=True):
                yield from tensors_of(part) if own else []

    def lose(self) -> None:
        """Forget what was computed."""
        for result in self.results():
            if result.is_floating_point():
                result.fill_(float("nan"))

    @torch.no_grad()
    def replay(self) -> None:
        """Compute everything anew, where it was: one launch."""
        pretend.State.counts.launches += 1
        with pretend.recorded(), torch._C._AutoDispatchBelowAutograd():
            for other in self.pool:
                if other is not self:
                    other.lose()
            for func, args, kwargs, found in self.calls:
                for old, new in zip(tensors_of(found), tensors_of(func(*args, **kwargs)), strict=True):
                    if address(old) != address(new):
                        old.copy_(new)


class Capture(TorchDispatchMode):
    """Stands for `torch.cuda.graph`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # whose wrapper takes as long as all else
        return False

    def __init__(self, graph: CUDAGraph, pool: list[CUDAGraph]) -> None:
        super().__init__()
        self.graph, self.written = graph, []
        self.devices = [torch.device("cuda")] if graphs.DEVICE == "cuda" else []  # else the CPU stands for one
        graph.pool = pool
        if not Stream.warm:
            raise RuntimeError("captured without a warm-up on a side stream")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        silent = "batch_norm" in func._schema.name and "backward" not in func._schema.name  # about what it writes
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if silent or (argument.alias_info is not None and argument.alias_info.is_write):
                self.written += [(tensor, tensor.clone()) for tensor in tensors_of(value)]
        known = pretend.kind(func)
        by_host = known.draws and not tensors_of(args)  # no graph has it
        with pretend.recorded() as counts, torch.random.fork_rng([*self.devices], enabled=known.draws and not by_host):
            found = func(*args, **(kwargs or {}))
        if counts.waits or (known.waits and not self.devices):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if not by_host:
            self.graph.calls.append((func, args, kwargs or {}, found))
        return found

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        Stream.warm = False
        with torch.no_grad():
            for tensor, before in reversed(self.written):
                tensor.copy_(before)
            self.graph.lose()
        if error[0] is None:
            self.graph.pool.append(self.graph)


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def address(tensor: Tensor) -> int:
    return getattr(tensor, "here", tensor).data_ptr()  # type: ignore[no-any-return]


def stand_in(patch: pytest.MonkeyPatch, device: str = "cpu") -> None:
    """Let there be graphs of operations on `device`."""
    there = {"CUDAGraph": CUDAGraph, "graph": Capture, "graph_pool_handle": list}
    there |= {"Stream": Stream, "stream": on, "current_stream": lambda: Stream.current}
    for name, value in there.items():
        patch.setattr(torch.cuda, name, value)
    patch.setattr(graphs, "DEVICE", device)
    graphs.say.cache_clear()
