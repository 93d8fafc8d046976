"""A fixed memory layout of tensors, so that all executors compute the same bits, and reproducible decompositions.

BLAS and LAPACK libraries choose their kernels by the layout of a tensor and by the alignment of its memory, and split
sums by the number of threads. Intel's library promises equal bits for equal numbers only if all three are equal
("Getting Reproducible Results", developer guide of oneMKL). Therefore every argument and result of a client operation
is contiguous and begins at a multiple of 64 bytes, with every executor. Decompositions get fresh copies with this
layout and one thread. No other module calls ``torch.linalg``, except its ``vector_norm``: a test checks this.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes; torch allocates the memory of new tensors at multiples of it."""


def is_settled(tensor: Tensor) -> bool:
    """Return whether a tensor is contiguous and, if it is in the CPU's memory, aligned."""
    return tensor.is_contiguous() and (tensor.device.type != "cpu" or tensor.data_ptr() % ALIGNMENT == 0)


def settled(value: Any) -> Any:
    """Return an argument or a result of a client operation with every tensor contiguous and aligned.

    `value` is a tensor, or a dict, list, tuple or dataclass with tensors at any depth. Remote models (`Handle`) are not
    fetched. If no tensor has to be copied, the value itself is returned.
    """
    if isinstance(value, Tensor):
        return value if value.layout is not torch.strided or is_settled(value) else _copied(value)
    parts: Any
    if type(value) is dict:
        parts = {key: settled(part) for key, part in value.items()}
        return value if all(part is value[key] for key, part in parts.items()) else parts
    if isinstance(value, list | tuple):
        parts = [settled(part) for part in value]
        if all(part is old for part, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        parts = {name: settled(part) for name, part in found.items()}
        changed = {name: part for name, part in parts.items() if part is not found[name]}
        return replace(value, **changed) if changed else value
    return value


def svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the reduced singular value decomposition U, S, Vᵀ of a matrix on the CPU, (m, n).

    With k = min(m, n) these are (m, k), (k,) and (k, n), each contiguous and aligned.
    """
    found: tuple[Tensor, Tensor, Tensor] = _reproducible(lambda own: torch.linalg.svd(own, full_matrices=False), matrix)
    return found


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Return the solution x, (n,), of A x = b for a matrix A, (n, n), and b, (n,). The host does not wait for a GPU.

    A singular matrix raises no error; its solution has values that are NaN or infinite.
    """
    found: tuple[Tensor] = _reproducible(lambda *own: torch.linalg.solve_ex(*own)[:1], matrix, right)
    return found[0]


def _reproducible(call: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> Any:
    """Call a LAPACK routine with aligned copies of the tensors and one thread; return aligned copies of its results."""
    if (threads := torch.get_num_threads()) != 1:
        torch.set_num_threads(1)
    try:
        return tuple(map(_copied, call(*map(_copied, tensors))))
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)
