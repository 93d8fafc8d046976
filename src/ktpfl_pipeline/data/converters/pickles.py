"""Safe reading of NumPy arrays from a pickle: the unpickler knows only five names and runs no code of the pickle.

A pickle contains the names of the functions that it calls. NumPy's arrays need five names, which are replaced by
functions of this module. Any other name is an error before anything is imported or called. NumPy's own dtype is not
used, because a dtype's state from a pickle could turn arbitrary bytes into an array of objects.
"""

import io
import pickle
import re
from typing import Any

import numpy as np

_TYPE = re.compile(r"[biuf][1248]|O8")


class _Type:
    """A replacement for numpy.dtype: the type of an array's values. The byte order is in the state."""

    def __init__(self, text: Any, *_: Any) -> None:
        if not _TYPE.fullmatch(str(text)):
            raise ValueError(f"it has values of type {text!r}, and only arrays of numbers are read")
        self.text, self.order = str(text), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise ValueError("it has values in an unknown order of bytes")
        self.order = state[1]


class _Array:
    """A replacement for numpy.ndarray. The values are in the state."""

    values: Any = None

    def __init__(self, *_: Any) -> None:
        """Ignore the arguments, with which NumPy would make an empty array before the state is set."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, values = state
        if kind.text == "O8":  # a dict in an array without dimensions, or a list of lists, pairs or strings
            rows, columns = (*shape, 1, 1)[:2]
            if len(shape) > 2 or (by_column is True and columns > 1) or len(values) != rows * columns:
                raise ValueError(f"it has objects of shape {shape}, and only lists and lists of pairs are read")
            pairs = [values[row * columns : (row + 1) * columns] for row in range(rows)] if len(shape) == 2 else values
            self.values = pairs if shape else values[0]
        else:
            array = np.frombuffer(values, np.dtype(kind.order + kind.text))
            self.values = array.reshape(shape, order="F" if by_column is True else "C")


def _bytes(text: str, encoding: str) -> bytes:
    """Return bytes from the form in which pickle protocols before 3 write them."""
    if encoding != "latin1":
        raise ValueError("it encodes something other than bytes")
    return text.encode("latin1")


_NAMES: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": None,  # an argument of `_reconstruct`, which is ignored and cannot be called
    "numpy.dtype": _Type,
    "_codecs.encode": _bytes,
}


class _Refused(ValueError):
    """The error for a name in a pickle that is not allowed."""


class _Unpickler(pickle._Unpickler):
    """Python's unpickler in Python. The one in C would allocate memory for as many objects as a file claims to have."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a name. Raises _Refused for any other name."""
        if f"{module}.{name}" not in _NAMES:
            raise _Refused(f"it names {module}.{name}, which could run code")
        return _NAMES[f"{module}.{name}"]


def read(content: bytes) -> Any:
    """Return the content of a pickle of dicts, lists, tuples, numbers, strings and numeric arrays.

    Raises ValueError if the pickle contains anything else or is incomplete.
    """
    try:
        found = plain(_Unpickler(io.BytesIO(content)).load())
    except _Refused:
        raise
    except Exception as error:  # invalid bytes can cause any error in an unpickler
        raise ValueError(f"it is not a whole pickle of arrays of numbers: {type(error).__name__}, {error}") from error
    return {name: plain(value) for name, value in found.items()} if isinstance(found, dict) else found


def plain(value: Any) -> Any:
    return value.values if isinstance(value, _Array) else value
