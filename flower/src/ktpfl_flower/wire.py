"""Messages between the server and clients: plain values as JSON, and tensors as bytes. No pickles, no code.

A reader trusts no sender: types, dtypes, shapes and sizes are checked before bytes become a tensor.
"""

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_flower.frames import Frame
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import Params

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool)
}
"""Dtypes that tensors in messages may have, by name."""
LIMIT = 2**32
"""The most bytes that the tensors of one packet may have."""
STAYS = "Private samples would have to leave their client. Choose a method that does not need them."
DIMENSIONS = 8
"""The most dimensions of a tensor."""
TEXT = 2**24
"""The most characters of one packet's JSON."""
DEPTH = 8
"""The deepest nesting of values."""
NESTED = 64
"""The deepest nesting of lists and objects in a packet's JSON."""

Kinds = dict[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape of a model's tensors."""


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
    """A model that a client has stored.

    Attributes:
        version: the number that the client gave the model.
        kinds: dtype and shape of its tensors; empty on the way to the client.
        model: its tensors if they travel too; else None.
    """

    version: int
    kinds: Kinds = field(default_factory=dict)
    model: Params | None = None


@dataclass(frozen=True)
class Initial:
    """The initial model of an architecture, which server and clients draw from the federation's seed."""

    architecture: str


def kinds_of(params: Params) -> Kinds:
    """Return dtype and shape of each tensor of a model."""
    return {name: (_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in params.items()}


def packed(value: Any) -> Packet:
    """Return a packet with the value of an operation, or its arguments, under ``value``."""
    tensors: dict[str, Tensor] = {}
    return Packet({"value": _tree(value, tensors)}, tensors)


def unpacked(packet: Packet) -> Any:
    """Return the value that `packed` was given.

    Raises:
        InputError: if it is missing or not allowed, or the packet has tensors that it does not name.
    """
    if "value" not in packet.values:
        raise InputError("it has no value.")
    unread = dict(packet.tensors)
    value = _value(packet.values["value"], unread, DEPTH)
    if unread:
        raise InputError(f"it has {len(unread)} tensors that its value does not name.")
    return value


def dumped(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    """Return dtype, shape and bytes of a tensor, in C order."""
    return _name(tensor.dtype), tuple(tensor.shape), tensor.detach().cpu().contiguous().numpy().tobytes()


def loaded(dtype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    """Return the tensor that `dumped` was given.

    Raises:
        InputError: if the dtype or the shape is not allowed, or the number of bytes does not match them.
    """
    if dtype not in DTYPES:
        raise InputError(f"it has a tensor of {reprlib.repr(dtype)}; allowed are {', '.join(DTYPES)}.")
    if not is_shape(shape):
        raise InputError(f"it has a tensor of shape {reprlib.repr(shape)}, which is not allowed.")
    wanted = math.prod(shape) * DTYPES[dtype].itemsize
    if wanted != len(data):
        raise InputError(f"it has a tensor of {dtype} and shape {shape} in {len(data):,} bytes instead of {wanted:,}.")
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=dtype).reshape(shape))


def frame_of(packet: Packet) -> Frame:
    """Return a packet as a message in bytes."""
    return Frame(json.dumps(packet.values), {name: dumped(tensor) for name, tensor in packet.tensors.items()})


def packet_of(frame: Frame) -> Packet:
    """Return the packet in a message in bytes.

    Raises:
        InputError: if the packet is too large, or its values or arrays are not allowed.
    """
    check_size(sum(len(data) for *_, data in frame.arrays.values()))
    return Packet(values_of(frame.text), {name: loaded(*array) for name, array in frame.arrays.items()})


def is_shape(shape: Any) -> bool:
    """Return whether a value is a shape with at most `DIMENSIONS` dimensions and `LIMIT` elements."""
    if not isinstance(shape, tuple | list) or len(shape) > DIMENSIONS:
        return False
    return all(type(size) is int and size >= 0 for size in shape) and math.prod(max(1, size) for size in shape) <= LIMIT


def values_of(text: str) -> dict[str, Any]:
    """Return the values in a packet's JSON.

    Raises:
        InputError: if the JSON is too long, too deeply nested, or not an object.
    """
    if len(text) > TEXT:
        raise InputError(f"its values have {len(text):,} characters; at most {TEXT:,} are allowed.")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not _is_shallow(values):
        raise InputError("its values are not the JSON of a message.")
    return values


def check_size(nbytes: int) -> None:
    """Raise an `InputError` if a packet's tensors have more than `LIMIT` bytes."""
    if nbytes > LIMIT:
        raise InputError(f"it has {nbytes:,} bytes; at most {LIMIT:,} are allowed.")


def _is_shallow(values: Any) -> bool:
    """Return whether lists and objects are nested at most `NESTED` deep, without recursion."""
    level = [values]
    for _ in range(NESTED):
        within = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for parts in within for part in parts if isinstance(part, dict | list)]
    return not level


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value for JSON; its tensors are added to `tensors`."""
    tree: Any
    match value:
        case None | bool() | int() | float() | str():
            tree = value
        case Tensor():
            tree = {"tensor": _added(value, tensors)}
        case Initial():
            tree = {"initial": value.architecture}
        case Left():
            given = {} if value.model is None else _tree(value.model, tensors)
            tree = {"left": value.version, "kinds": {name: list(kind) for name, kind in value.kinds.items()}, **given}
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


def _value(tree: Any, tensors: dict[str, Tensor], depth: int) -> Any:
    """Return the value of a tree; the tensors that it names are removed from `tensors`."""
    try:
        match tree:
            case None | bool() | int() | float() | str():
                return tree
            case {"left": int(version), "kinds": dict(kinds), **rest} if (
                set(rest) <= {"model"} and 0 <= version < 2**63
            ):
                return Left(version, _kinds(kinds), _value(rest, tensors, depth) if rest else None)
            case dict() if len(tree) == 1 and depth:
                ((kind, inner),) = tree.items()
                return READERS[kind](inner, tensors, depth - 1)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass
    raise InputError(f"it has the value {reprlib.repr(tree)[:80]}, which is not allowed.")


def _kinds(told: dict[str, Any]) -> Kinds:
    """Return the kinds of a model; raise ValueError if one is not allowed."""
    found = {name: (dtype, shape) for name, (dtype, shape) in told.items()}
    if not all(dtype in DTYPES and is_shape(shape) for dtype, shape in found.values()):
        raise ValueError
    return {name: (dtype, tuple(shape)) for name, (dtype, shape) in found.items()}


READERS: dict[str, Callable[[Any, dict[str, Tensor], int], Any]] = {
    "tensor": lambda place, tensors, _: tensors.pop(place),
    "initial": lambda name, *_: Initial(str(name)),
    "model": lambda places, tensors, _: {name: tensors.pop(place) for name, place in places.items()},
    "tuple": lambda parts, tensors, depth: tuple(_value(part, tensors, depth) for part in parts),
}
"""The reader of each kind of value, by the only key of its object."""
