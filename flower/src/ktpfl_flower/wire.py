"""Messages between the server and clients: plain values as JSON, and tensors as bytes. No pickles, no code.

A reader trusts no sender: types, dtypes, shapes and sizes are checked before bytes become a tensor.
"""

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.weights import Params

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float16, torch.float32, torch.float64, torch.uint8, torch.uint16, torch.int64, torch.bool)
}
"""Dtypes that tensors in messages may have, by name."""
LENGTH = 8
"""Size in bytes of the header's length, which comes first."""
LIMIT = 2**32
"""The most bytes of one packet."""
STAYS = "Private samples would have to leave their client. Choose a method that does not need them."
DIMENSIONS = 8
"""The most dimensions of a tensor."""
TEXT = 2**24
"""The most bytes of one packet's header."""
NESTED = 64
"""The deepest nesting of lists and objects in a packet's JSON."""
INITIAL = 0
"""The number of a client's initial model, which server and client draw from the federation's seed."""


@dataclass(frozen=True, eq=False)
class Packet:
    """One message: plain values for JSON, and the tensors that the values name."""

    values: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the JSON and of the tensors, without what the transport adds."""
        return len(json.dumps(self.values).encode()) + sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, eq=False)
class Left:
    """A model that a client has.

    Attributes:
        version: the number that the client gave it when it stored it, with the state of its optimizer; `INITIAL` for
            its initial model, with an empty state.
        model: its tensors if they travel too; else None.
    """

    version: int
    model: Params | None = None


def packed(value: Any) -> Packet:
    """Return a packet with the value of an operation, or its arguments, under ``value``."""
    tensors: dict[str, Tensor] = {}
    return Packet({"value": _tree(value, tensors)}, tensors)


def unpacked(packet: Packet) -> Any:
    """Return the value that `packed` was given, or None.

    Raises:
        InputError: if it is not allowed, or the packet has tensors that it does not name.
    """
    unread = dict(packet.tensors)
    value = _value(packet.values.get("value"), unread)
    if unread:
        raise InputError(f"it has {plural(len(unread), 'tensor')} that its value does not name.")
    return value


def to_bytes(packet: Packet) -> bytes:
    """Return a packet as bytes: the length of the header, the header in JSON, and the tensors one after another."""
    listed = [[name, str(each.dtype).removeprefix("torch."), each.shape] for name, each in packet.tensors.items()]
    header = json.dumps({"values": packet.values, "tensors": listed}).encode()
    tensors = (tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in packet.tensors.values())
    return b"".join([len(header).to_bytes(LENGTH, "big"), header, *tensors])


def from_bytes(data: bytes) -> Packet:
    """Return the packet that `to_bytes` was given.

    Raises:
        InputError: if the packet is too large, or its values or tensors are not allowed.
    """
    size = int.from_bytes(data[:LENGTH], "big")
    if len(data) > LIMIT or size > TEXT:
        raise InputError(
            f"it has {len(data):,} bytes and {size:,} bytes of values; at most {LIMIT:,} and {TEXT:,} are allowed."
        )
    start = LENGTH + size
    try:
        header = json.loads(data[LENGTH:start])
        values, listed = header["values"], [(str(name), dtype, shape) for name, dtype, shape in header["tensors"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        values, listed = None, []
    if not isinstance(values, dict) or not _is_shallow(values):
        raise InputError("its values are not the JSON of a message.")
    tensors = {}
    for name, dtype, shape in listed:
        if not _is_kind(dtype, shape):
            raise InputError(
                f"it has a tensor of {reprlib.repr(dtype)} and shape {reprlib.repr(shape)}; it must be "
                f"{', '.join(DTYPES)} with at most {DIMENSIONS} dimensions and {LIMIT:,} values."
            )
        number = math.prod(shape)
        if (end := start + number * DTYPES[dtype].itemsize) > len(data):
            raise InputError(
                f"it has a tensor of {dtype} and shape {shape}, but only {plural(len(data) - start, 'byte')} of it."
            )
        values_of = np.frombuffer(data, dtype, number, start).reshape(shape)
        tensors[name], start = torch.from_numpy(values_of.copy()), end
    return Packet(values, tensors)


def _is_kind(dtype: Any, shape: Any) -> bool:
    """Return whether a tensor may have a dtype and a shape: at most `DIMENSIONS` dimensions and `LIMIT` elements."""
    if dtype not in DTYPES or not isinstance(shape, tuple | list) or len(shape) > DIMENSIONS:
        return False
    return all(type(size) is int and size >= 0 for size in shape) and math.prod(max(1, size) for size in shape) <= LIMIT


def _is_shallow(values: Any) -> bool:
    """Return whether lists and objects are nested at most `NESTED` deep, without recursion."""
    level = [values]
    for _ in range(NESTED):
        within = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for parts in within for part in parts if isinstance(part, dict | list)]
    return not level


def _tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value for JSON; its tensors are added to `tensors`."""
    tree: Any
    match value:
        case None | bool() | int() | float() | str():
            tree = value
        case Tensor():
            tree = {"tensor": _added(value, tensors)}
        case Left():
            given = {} if value.model is None else _tree(value.model, tensors)
            tree = {"left": value.version, **given}
        case Mapping() if all(isinstance(part, Tensor) for part in value.values()):
            tree = {"model": {name: _added(part, tensors) for name, part in value.items()}}
        case tuple():
            tree = {"tuple": [_tree(part, tensors) for part in value]}
        case _:
            raise InputError(
                f"A {type(value).__name__} cannot be sent to real clients; only numbers, text and tensors can."
            )
    return tree


def _added(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    """Add a tensor to `tensors`, and return its name in there."""
    if tensor.is_meta:
        raise InputError(STAYS)
    name = str(len(tensors))
    tensors[name] = tensor
    return name


def _value(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value of a tree; the tensors that it names are removed from `tensors`."""
    try:
        match tree:
            case None | bool() | int() | float() | str():
                return tree
            case {"left": int(version), **rest} if set(rest) <= {"model"} and 0 <= version < 2**63:
                return Left(version, _value(rest, tensors) if rest else None)
            case {"tensor": str(place), **rest} if not rest:
                return tensors.pop(place)
            case {"model": dict(places), **rest} if not rest:
                return {name: tensors.pop(place) for name, place in places.items()}
            case {"tuple": list(parts), **rest} if not rest:
                return tuple(_value(part, tensors) for part in parts)
    except (KeyError, TypeError):  # it names no tensor
        pass
    raise InputError(f"it has the value {reprlib.repr(tree)[:80]}, which is not allowed.")
