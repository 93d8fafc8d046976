"""Paths to settings, ``training.epochs``, in which a method may be named by a dotted path.

Dots separate names, and ``my_package.my_method:Nearest`` is one name: the dots before its colon belong to it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ktpfl_pipeline.core.extensions import PATH, is_path

GROUPS = ("methods", "spaces")
"""Settings whose names are methods: those of an experiment, and those of a tuning."""


def split(path: str) -> list[str]:
    """Return the names in a path, ``["methods", "my_package.my_method:Nearest", "own"]``."""
    group, _, rest = path.partition(".")
    if group == GROUPS[0] and (method := re.match(rf"({PATH.pattern})(?:\.|$)", rest)):
        after = rest[method.end() :]
        return [group, method[1], *(after.split(".") if after else [])]
    return path.split(".")


def rejoined(values: Any) -> Any:
    """Return a section as ``--params`` give it, with methods' dotted paths whole, which Kedro splits at every dot."""
    if not isinstance(values, Mapping):
        return values
    return {name: _with_methods(own) if name in GROUPS else own for name, own in values.items()}


def with_colon(name: str, values: Any) -> str:
    """Return what a method that ``--params`` names by dots only was meant to be: ``my_package.my_method:Nearest.k=1``.

    That is its `name` before the first dot, and the `values` below it. Empty where it was not meant so.
    """
    found = [name]
    while isinstance(values, Mapping) and len(values) == 1:
        (part, values), *_ = values.items()
        found.append(str(part))
    if len(found) < 3 or isinstance(values, Mapping):
        return ""
    *modules, kind, hyperparameter = found
    return f"{'.'.join(modules)}:{kind}.{hyperparameter}={values}"


def _with_methods(group: Any) -> Any:
    if not isinstance(group, Mapping):
        return group
    joined: dict[Any, Any] = {}
    for name, own in group.items():
        found = dict(_leaves(name, own))
        joined |= found if any(map(is_path, found)) else {name: own}
    return joined


def _leaves(name: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is below a name, by all names down to a dotted path that is whole, or to a value."""
    if is_path(str(name)) or not isinstance(values, Mapping):
        yield str(name), values
        return
    for part, own in values.items():
        yield from _leaves(f"{name}.{part}", own)
