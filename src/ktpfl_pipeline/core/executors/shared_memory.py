"""Messages between a worker and its parent process: tensors in shared memory, everything else through a pipe."""

import io
import math
import mmap
import os
import pickle
import tempfile
from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.linalg import ALIGNMENT

Place = tuple[int, torch.dtype, tuple[int, ...], bool]
"""A tensor's offset in bytes, its dtype and shape, and whether it was on a device other than the CPU."""
HERE = torch.device("cpu")


class SharedMemory:
    """Memory that this process and another share, for the tensors of one message at a time.

    The memory is only reserved: a page uses memory after its first write. All GPU tensors of a message are copied in
    one transfer, and arrive on the receiver's device.
    """

    def __init__(self, size: int, *, file: bool = False) -> None:
        """Reserve `size` bytes for forked processes or, in an unnamed `file`, for processes to which it is sent."""
        self._file = _nameless(size) if file else None
        self._map(size)

    def _map(self, size: int) -> None:
        self._bytes = torch.frombuffer(mmap.mmap(-1 if self._file is None else self._file, size), dtype=torch.uint8)

    def close_file(self) -> None:
        """Close the file and keep the memory, after the file has been sent to every process that needs it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __getstate__(self) -> tuple[Any, int]:
        """Return the file and the size, to be sent to a process that is being started."""
        assert self._file is not None, "memory without a file reaches forked processes alone"
        return reduction.DupFd(self._file), len(self._bytes)

    def __setstate__(self, sent: tuple[Any, int]) -> None:
        file, size = sent
        self._file = file.detach()
        self._map(size)
        self.close_file()

    def dump(self, message: Any) -> bytes:
        """Write the tensors of `message` into the memory; return the pickled rest. The previous message is lost."""
        rest = io.BytesIO()
        writer = _Writer(rest, len(self._bytes))
        writer.dump(message)
        writer.write(self._bytes)
        return rest.getvalue() + writer.end.to_bytes(8, "little")

    def load(self, rest: bytes, *, copy: bool, device: torch.device = HERE) -> Any:
        """Return the message for which `dump` returned `rest`. Without `copy`, tensors last until the next message.

        Tensors that were on another device are moved to `device` and stay valid.
        """
        used = self._bytes[: int.from_bytes(rest[-8:], "little")]
        return _Reader(io.BytesIO(rest), used, copy, device).load()


def _nameless(size: int) -> int:
    """Return the descriptor of an unnamed file of `size` bytes, which is in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("ktpfl_pipeline")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, size)
    return file


class _Writer(pickle.Pickler):
    """Pickles everything except tensors. Tensors for which no room is left are pickled too."""

    def __init__(self, rest: io.BytesIO, room: int) -> None:
        super().__init__(rest, protocol=pickle.HIGHEST_PROTOCOL)
        self._room = room
        self.end = 0  # the number of bytes of all tensors
        self._places: dict[int, tuple[Place, Tensor]] = {}  # the reference to the tensor keeps its id unique

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or value.device.type == "meta":
            return None
        if id(value) not in self._places:
            size = -(-value.numel() * value.element_size() // ALIGNMENT) * ALIGNMENT
            if self.end + size > self._room:
                return None
            place = (self.end, value.dtype, tuple(value.shape), value.device.type != "cpu")
            self._places[id(value)] = (place, value)
            self.end += size
        return self._places[id(value)][0]

    def write(self, memory: Tensor) -> None:
        """Write the tensors. GPU tensors are joined on the GPU first, so that the host waits only once."""
        far = [(place, value) for place, value in self._places.values() if place[-1]]
        if far:
            there = torch.empty(self.end, dtype=torch.uint8, device=far[0][1].device)
            _fill(there, far)
            memory[: self.end].copy_(there)
        _fill(memory, [(place, value) for place, value in self._places.values() if not place[-1]])


class _Reader(pickle.Unpickler):
    """Unpickles a message with its tensors from the memory. Only processes of the same run write these messages."""

    def __init__(self, rest: io.BytesIO, memory: Tensor, copy: bool, device: torch.device) -> None:
        super().__init__(rest)
        self._memory, self._copy, self._device = memory, copy, device
        self._there: Tensor | None = None

    def persistent_load(self, place: Place) -> Tensor:
        if not place[-1]:
            tensor = _view(self._memory, place)
            return tensor.clone() if self._copy else tensor
        if self._there is None:
            self._there = self._memory.to(self._device)
        return _view(self._there, place).clone()


def _fill(memory: Tensor, placed: list[tuple[Place, Tensor]]) -> None:
    for place, value in placed:
        _view(memory, place).copy_(value.detach())


def _view(memory: Tensor, place: Place) -> Tensor:
    start, dtype, shape, _ = place
    return memory[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
