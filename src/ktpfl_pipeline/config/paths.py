"""Paths of settings, such as ``training.epochs``, which may contain a method's dotted path.

Dots separate the names in a path. The dotted path ``my_package.my_method:Nearest`` is one name, including its dots.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ktpfl_pipeline.core.extensions import PATH, is_path

GROUPS = ("methods", "spaces")
"""The groups whose keys are names of methods: in an experiment, and in a tuning."""


def split(path: str) -> list[str]:
    """Return the names in a path, such as ``["methods", "my_package.my_method:Nearest", "own"]``."""
    group, _, rest = path.partition(".")
    if group == GROUPS[0] and (method := re.match(rf"({PATH.pattern})(?:\.|$)", rest)):
        after = rest[method.end() :]
        return [group, method[1], *(after.split(".") if after else [])]
    return path.split(".")


def rejoined(values: Any) -> Any:
    """Return a section of ``--params`` with methods' dotted paths rejoined, because Kedro splits names at every dot."""
    if not isinstance(values, Mapping):
        return values
    return {name: _with_methods(own) if name in GROUPS else own for name, own in values.items()}


def with_colon(name: str, values: Any) -> str:
    """Return the correct form of a setting whose method was written without a colon, for an error message.

    The path ``my_package.my_method.Nearest.k=1`` of ``--params`` becomes the key `name`, ``my_package``, with nested
    mappings in `values`. The result is ``my_package.my_method:Nearest.k=1``. It is empty if `name` and `values` cannot
    be such a path.
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
    """Yield the values below a name by their dotted names. A complete dotted path of a method is not split further."""
    if is_path(str(name)) or not isinstance(values, Mapping):
        yield str(name), values
        return
    for part, own in values.items():
        yield from _leaves(f"{name}.{part}", own)
