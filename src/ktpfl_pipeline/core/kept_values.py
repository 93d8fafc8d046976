"""What a module keeps outside of its parameters and saved buffers: numbers, words, tensors and generators."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence
from functools import partial
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.extensions import is_library

_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has."""
MOST = 1000
"""The most items of a list or mapping of a class or a Python module that is looked through."""


class Kept(NamedTuple):
    """A value that a module keeps outside of its state."""

    value: Any
    put: Callable[[Any], Any]  # writes another value to the same place


def values_of(module: nn.Module) -> dict[str, Kept]:
    """Return the values that the layers of a module keep outside of their parameters and saved buffers, by name."""
    found: dict[str, Kept] = {}
    seen = {id(part) for part in module.modules()} | {id(each) for each in module.state_dict(keep_vars=True).values()}

    def add(name: str, value: Any, put: Callable[[Any], Any]) -> None:
        if isinstance(value, int | float | str | None):
            found[name] = Kept(value, put)
            return
        if id(value) in seen or isinstance(value, type | ModuleType):
            return
        seen.add(id(value))
        if isinstance(value, Tensor | torch.Generator | np.ndarray):
            found[name] = Kept(value, put)
        elif isinstance(value, nn.Module):
            for path, part in value.named_modules(prefix=name):
                of_layer(path, part)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                add(f"{name}[{key!r}]", each, partial(_set, value, key))
        elif isinstance(value, list | tuple | deque):
            for place, each in enumerate(value):
                add(f"{name}[{place}]", each, partial(_set, value, place))
        elif isinstance(value, SimpleNamespace) or not is_library(type(value).__module__):
            slots = chain.from_iterable(getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
            for key in (*getattr(value, "__dict__", ()), *(slot for slot in slots if hasattr(value, slot))):
                add(f"{name}.{key}", getattr(value, key), partial(setattr, value, key))

    def of_layer(path: str, part: nn.Module) -> None:
        tensors = {**part._parameters, **part._buffers}  # those in the state are already seen
        for key, value in chain(tensors.items(), vars(part).items()):
            if key not in _OF_TORCH:
                add(f"{path}.{key}".lstrip("."), value, partial(setattr, part, key))

    for path, part in module.named_modules():
        of_layer(path, part)
    return found


def _set(values: Any, key: Any, value: Any) -> None:
    if isinstance(values, MutableMapping | MutableSequence):
        values[key] = value


def _shared(module: nn.Module) -> dict[str, Kept]:
    """Return the numbers that the classes of a module's layers and their Python modules have, by name.

    Those in lists, mappings and arrays of at most `MOST` items count too.
    """
    found: dict[str, Kept] = {}

    def add(name: str, value: Any, put: Callable[[Any], Any], depth: int = 2) -> None:
        if type(value) in (int, float) or (isinstance(value, np.ndarray) and value.size == 1):
            found[name] = Kept(value, put)
        elif isinstance(value, list | dict | deque) and len(value) <= MOST and depth:
            items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
            for key, each in items:
                add(f"{name}[{key!r}]", each, partial(_set, value, key), depth - 1)

    classes = dict.fromkeys(chain.from_iterable(type(part).__mro__ for part in module.modules()))
    for each in classes:
        if not is_library(each.__module__):
            for owner in (each, sys.modules.get(each.__module__)):
                for key, value in {**getattr(owner, "__dict__", {})}.items():
                    if not key.startswith("__"):
                        add(f"{getattr(owner, '__name__', '')}.{key}", value, partial(setattr, owner, key))
    return found


def numbers_of(module: nn.Module) -> dict[str, Kept]:
    """Return the numbers that a module keeps, by name; a tensor or array of one element counts as a number."""
    found = {}
    for name, (value, put) in {**values_of(module), **_shared(module)}.items():
        if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
            found[name] = Kept(value.item(), value.detach().fill_)
        elif isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iuf":
            found[name] = Kept(value.item(), value.fill)
        elif type(value) in (int, float):
            found[name] = Kept(value, put)
    return found


def marks_of(module: nn.Module, *, by_value: bool = False) -> dict[str, Any]:
    """Return a value for everything that a module keeps, which differs if it has changed.

    A tensor counts as changed if it was replaced or written to or, `by_value`, if its numbers differ.
    """
    found = {}
    for name, (value, _) in {**values_of(module), **_shared(module)}.items():
        found[name] = value
        if isinstance(value, torch.Generator):
            found[name] = value.get_state().tolist()
        elif isinstance(value, np.ndarray):
            found[name] = (value.shape, b"" if value.dtype.hasobject else value.tobytes())
        elif isinstance(value, Tensor):
            found[name] = value.tolist() if by_value else (id(value), value._version)
    return found
