"""Arrays out of a pickle, without unpickling: nothing that a pickle names is imported or called.

A pickle is a program for a small machine with a stack. This machine knows the instructions that numpy's arrays, dicts,
lists, numbers and text need, and four names, which are two texts to it and nothing else. Any other is an error.
"""

import math
import pickletools
import re
from typing import Any

import numpy as np

MAX_INSTRUCTIONS = 1_000_000  # a shard of PFLlib has a hundred

_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"} | {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PASSED_OVER = {"PROTO", "FRAME", "STOP"}
_TYPE = re.compile(r"[biuf][1248]|O8")
_MARK = object()  # on the stack: here the items of a list, dict or tuple begin

_ARRAY, _ARRAY_TYPE, _VALUE_TYPE, _BYTES = "_reconstruct", "ndarray", "dtype", "encode"
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): _VALUE_TYPE,
    ("_codecs", "encode"): _BYTES,
}


class _Name(str):
    """One of the names above, told from a text that a pickle brings."""


class _Type:
    """A type of values; the order of their bytes is told after it is made."""

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str) or not _TYPE.fullmatch(text):
            raise ValueError(f"it has values of type {text!r}, and numbers alone are read")
        self.text, self.order = text, "="


class _Array:
    """An array, whose values are told after it is made."""

    values: Any = None


def read(content: bytes) -> Any:
    """Return what a pickle describes: dicts, lists, tuples, numbers, text, and arrays of numbers.

    Raises:
        ValueError, or an error of another kind where it is not whole: it has an instruction or a name that arrays do
            not need.
    """
    machine = _Machine()
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if count >= MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")
        machine.follow(instruction.name, argument)
    (result,) = machine.stack
    return plain(result)


def plain(value: Any) -> Any:
    """Return the values of an array; anything else as it is."""
    return value.values if isinstance(value, _Array) else value


class _Machine:
    """The stack, and what was put aside by number."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.steps: dict[str, Any] = {
            "GLOBAL": lambda text: self._name(*text.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(*self._pop(2)),
            "MARK": lambda _: self.stack.append(_MARK),
            "BINGET": lambda number: self.stack.append(self.memo[number]),
            "LONG_BINGET": lambda number: self.stack.append(self.memo[number]),
            "BINPUT": self._remember,
            "LONG_BINPUT": self._remember,
            "MEMOIZE": lambda _: self._remember(len(self.memo)),
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "TUPLE": lambda _: self.stack.append(tuple(self._marked())),
            **{f"TUPLE{n}": lambda _, n=n: self.stack.append(tuple(self._pop(n))) for n in (1, 2, 3)},
            "APPEND": lambda _: self._extend(self._pop(1)),
            "APPENDS": lambda _: self._extend(self._marked()),
            "SETITEM": lambda _: self._set(self._pop(2)),
            "SETITEMS": lambda _: self._set(self._marked()),
            "REDUCE": lambda _: self._make(*self._pop(2)),
            "BUILD": lambda _: self._fill(*self._pop(1)),
        }

    def follow(self, instruction: str, argument: Any) -> None:
        if instruction in _VALUES:
            self.stack.append(argument)
        elif instruction in _CONSTANTS:
            self.stack.append(_CONSTANTS[instruction])
        elif instruction in self.steps:
            self.steps[instruction](argument)
        elif instruction not in _PASSED_OVER:
            raise ValueError(f"it has the instruction {instruction}, which arrays do not need")

    def _pop(self, number: int) -> list[Any]:
        found = [self.stack.pop() for _ in range(number)]
        return found[::-1]

    def _marked(self) -> list[Any]:
        """Return what is above the last mark, and take it off the stack."""
        found = []
        while (item := self.stack.pop()) is not _MARK:
            found.append(item)
        return found[::-1]

    def _remember(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def _name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _NAMES:
            raise ValueError(f"it names {module}.{name}, which could run code")
        self.stack.append(_Name(_NAMES[module, name]))

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("it adds items to what is no list")
        self.stack[-1].extend(map(plain, items))

    def _set(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or not all(type(key) is str for key in items[::2]):
            raise ValueError("it sets items of what is no dict, or by keys that are no text")
        self.stack[-1].update(zip(items[::2], map(plain, items[1::2]), strict=True))

    def _make(self, name: Any, arguments: tuple[Any, ...]) -> None:
        """Put on the stack what calling `name` would make; nothing is called."""
        if not isinstance(name, _Name) or name == _ARRAY_TYPE:
            raise ValueError(f"it calls {name!r}")
        if name == _ARRAY:
            self.stack.append(_Array())
        elif name == _VALUE_TYPE:
            self.stack.append(_Type(arguments[0]))
        elif isinstance(arguments[0], str) and arguments[1] == "latin1":  # how bytes were written before protocol 3
            self.stack.append(arguments[0].encode("latin1"))
        else:
            raise ValueError("it calls encode for something else than bytes")

    def _fill(self, state: tuple[Any, ...]) -> None:
        made = self.stack[-1]
        if isinstance(made, _Type):
            if state[1] not in ("<", ">", "|", "="):
                raise ValueError(f"it has values in an order of bytes {state[1]!r}")
            made.order = state[1]
        elif isinstance(made, _Array):
            _, shape, kind, by_column, values = state
            made.values = _values(shape, kind, by_column, values)
        else:
            raise ValueError("it gives a state to what is no array")


def _values(shape: Any, kind: Any, by_column: Any, values: Any) -> Any:
    """Return an array of numbers; the one object of a 0-d array of objects; or a list of objects."""
    if not isinstance(kind, _Type) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("it has an array without a type or a shape")
    if kind.text == "O8":
        if type(values) is not list or len(values) != math.prod(shape):
            raise ValueError("it has an array of other values than its shape says")
        return values if shape else values[0]
    if type(values) is not bytes:
        raise ValueError("it has an array of numbers without bytes")
    array = np.frombuffer(values, np.dtype(kind.order + kind.text))
    return array.reshape(shape, order="F" if by_column is True else "C")
