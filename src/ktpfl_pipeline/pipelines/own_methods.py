"""Methods of the user's own: given by a dotted path in an experiment's section of conf/, they join its comparison.

Pipelines are registered without any settings at hand, but not before they are asked for. By then the hook that reads
the settings has called `remember`; where none were read, as in `kedro registry list`, there are no such methods.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from ktpfl_pipeline.config.parsing import experiments

_found: ContextVar[dict[str, tuple[str, ...]] | None] = ContextVar("own_methods", default=None)


def remember(parameters: Mapping[str, Any]) -> None:
    """Keep the dotted paths, such as ``my_package.my_method:Nearest``, among the methods of each experiment."""
    _found.set(
        {name: tuple(path for path in parameters[name]["methods"] if ":" in path) for name in experiments(parameters)}
    )


def own_methods(experiment: str) -> tuple[str, ...]:
    """Return the methods of an experiment that are given by a dotted path, in their order under conf/."""
    return (_found.get() or {}).get(experiment, ())
