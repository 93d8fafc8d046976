"""Arrays of numbers out of a pickle, by an unpickler that knows five names.

A pickle names what it calls. Here each of the five names that numpy's arrays need stands for a function of this file,
which checks its arguments; any other name is an error before anything is imported or called. So no code of a pickle can
run, and numpy's own unpickling never sees what a file claims.
"""

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

MAX_INSTRUCTIONS = 1_000_000  # a file of PFLlib has a hundred

_TYPE = re.compile(r"[biuf][1248]|O8")
_ARRAY_TYPE = object()  # what `numpy.ndarray` stands for: it is passed on, and cannot be called


class _Type:
    """A type of values; the order of their bytes is in its state."""

    def __init__(self, text: str) -> None:
        if not _TYPE.fullmatch(text):
            raise ValueError(f"it has values of type {text!r}, and only arrays of numbers are read")
        self.text, self.order = text, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise ValueError("it has values in an unknown order of bytes")
        self.order = state[1]


class _Array:
    """An array, whose values are in its state."""

    values: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, values = state
        if not isinstance(kind, _Type) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("it has an array without a type or a shape")
        if kind.text == "O8":  # the dict of a client, an array without dimensions, or a list of texts
            if type(values) is not list or len(values) != math.prod(shape):
                raise ValueError("it has an array of other values than its shape says")
            self.values = values if shape else values[0]
        else:
            array = np.frombuffer(values, np.dtype(kind.order + kind.text))
            self.values = array.reshape(shape, order="F" if by_column is True else "C")


def _array(kind: Any, *_: Any) -> _Array:
    if kind is not _ARRAY_TYPE:
        raise ValueError("it makes an array of an unknown kind")
    return _Array()


def _type(text: Any, *_: Any) -> _Type:
    return _Type(str(text))


def _bytes(text: Any, encoding: Any) -> bytes:
    """Return bytes as protocols before 3 write them."""
    if type(text) is not str or encoding != "latin1":
        raise ValueError("it encodes something other than bytes")
    return text.encode("latin1")


_NAMES: dict[tuple[str, str], Callable[..., Any] | object] = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): _type,
    ("_codecs", "encode"): _bytes,
}


class _Refused(ValueError):
    """A name that is not one of the five."""


def _counted(step: Callable[[Any], None]) -> Callable[[Any], None]:
    def counted(machine: Any) -> None:
        machine.steps += 1
        if machine.steps > MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")
        step(machine)

    return counted


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, which remembers objects in a dict: the one in C makes room for as many as a file claims.

    Its instructions are counted, since a byte such as a mark becomes a list in memory.
    """

    steps = 0
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: _counted(step) for code, step in pickle._Unpickler.dispatch.items()
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for here."""
        if (module, name) not in _NAMES:
            raise _Refused(f"it names {module}.{name}, which could run code")
        return _NAMES[module, name]


def read(content: bytes) -> Any:
    """Return what a pickle describes: dicts, lists, tuples, numbers, text, and arrays of numbers; else a ValueError."""
    try:
        found = plain(_Unpickler(io.BytesIO(content)).load())
    except _Refused:
        raise
    except Exception as error:  # wrong bytes make an unpickler stumble in any way
        raise ValueError(f"it is not a whole pickle of arrays of numbers: {type(error).__name__}, {error}") from error
    return {name: plain(value) for name, value in found.items()} if isinstance(found, dict) else found


def plain(value: Any) -> Any:
    """Return the values of an array; anything else as it is."""
    return value.values if isinstance(value, _Array) else value
