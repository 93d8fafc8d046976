"""Arrays of numbers out of a pickle, by an unpickler that knows five names.

A pickle names what it calls. Here the five names that numpy's arrays need are replaced by functions of this file;
any other name is an error before anything is imported or called. So no code of a pickle can run. numpy's own dtype is
not used: its state, read from a pickle, can make an array of objects out of any bytes.
"""

import io
import pickle
import re
from typing import Any

import numpy as np

_TYPE = re.compile(r"[biuf][1248]|O8")


class _Type:
    """A type of values; the order of their bytes is in its state."""

    def __init__(self, text: Any, *_: Any) -> None:
        if not _TYPE.fullmatch(str(text)):
            raise ValueError(f"it has values of type {text!r}, and only arrays of numbers are read")
        self.text, self.order = str(text), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise ValueError("it has values in an unknown order of bytes")
        self.order = state[1]


class _Array:
    """An array, whose values are in its state."""

    values: Any = None

    def __init__(self, *_: Any) -> None:
        """Ignore the kind and the shape of the empty array that numpy would make before its state is set."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, values = state
        if kind.text == "O8":  # the dict of a client, an array without dimensions, or a list of texts
            self.values = values if shape else values[0]
        else:
            array = np.frombuffer(values, np.dtype(kind.order + kind.text))
            self.values = array.reshape(shape, order="F" if by_column is True else "C")


def _bytes(text: str, encoding: str) -> bytes:
    """Return bytes as protocols before 3 write them."""
    if encoding != "latin1":
        raise ValueError("it encodes something other than bytes")
    return text.encode("latin1")


_NAMES: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": None,  # what `_reconstruct` is to make: it is passed on, and cannot be called
    "numpy.dtype": _Type,
    "_codecs.encode": _bytes,
}


class _Refused(ValueError):
    """A name that is not one of the five."""


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, which remembers objects in a dict: the one in C makes room for as many as a file claims."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for here."""
        if f"{module}.{name}" not in _NAMES:
            raise _Refused(f"it names {module}.{name}, which could run code")
        return _NAMES[f"{module}.{name}"]


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
