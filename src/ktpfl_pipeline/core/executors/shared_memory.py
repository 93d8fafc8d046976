"""Messages between a worker and the process that started it: tensors in shared memory, everything else in a pipe."""

import io
import math
import mmap
import pickle
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64  # bytes, as of memory that torch allocates, so that the same kernels run


class SharedMemory:
    """A piece of memory for the tensors of one message at a time, seen by this process and those forked from it.

    It is reserved and not taken: pages cost memory once they have been written.
    """

    def __init__(self, size: int) -> None:
        """Reserve `size` bytes."""
        self._bytes = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)

    def dump(self, message: Any) -> bytes:
        """Write the tensors of `message` into the memory; return its pickled remainder. The message before is lost."""
        rest = io.BytesIO()
        _Writer(rest, self._bytes).dump(message)
        return rest.getvalue()

    def load(self, rest: bytes, *, copy: bool) -> Any:
        """Return the message of which `dump` returned `rest`; without `copy`, its tensors last until the next one."""
        return _Reader(io.BytesIO(rest), self._bytes, copy=copy).load()


class _Writer(pickle.Pickler):
    """Pickles all but the tensors; those for which no room is left too."""

    def __init__(self, rest: io.BytesIO, memory: Tensor) -> None:
        super().__init__(rest, protocol=pickle.HIGHEST_PROTOCOL)
        self._memory = memory
        self._end = 0
        self._places: dict[int, tuple[Any, Tensor]] = {}  # the tensor is kept: its id is its own while it lives

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not Tensor or value.device.type != "cpu":
            return None
        if id(value) not in self._places:
            size = value.numel() * value.element_size()
            if self._end + size > len(self._memory):
                return None
            place = (self._end, value.dtype, tuple(value.shape))
            _view(self._memory, place).copy_(value.detach())
            self._places[id(value)] = (place, value)
            self._end += -(-size // ALIGNMENT) * ALIGNMENT
        return self._places[id(value)][0]


class _Reader(pickle.Unpickler):
    """Unpickles, with the tensors from the memory; it reads only what a process of this very run has written."""

    def __init__(self, rest: io.BytesIO, memory: Tensor, *, copy: bool) -> None:
        super().__init__(rest)
        self._memory, self._copy = memory, copy

    def persistent_load(self, place: Any) -> Tensor:
        tensor = _view(self._memory, place)
        return tensor.clone() if self._copy else tensor


def _view(memory: Tensor, place: tuple[int, torch.dtype, tuple[int, ...]]) -> Tensor:
    start, dtype, shape = place
    return memory[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
