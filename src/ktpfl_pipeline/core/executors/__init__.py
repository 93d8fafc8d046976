"""The executors, one per file, and `create`, which makes the executor that ``compute.executor`` names.

Such a file has a subclass of `Executor`, and two functions of `Compute`: `create` and `parallel`.
"""

from importlib import import_module
from typing import Any

from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.settings import Compute


def create(compute: Compute) -> Executor:
    """Return the executor that ``compute.executor`` names; all executors return the same bits.

    Raises InputError if the executor is impossible with these torch threads, on this device, or on this machine.
    """
    executor: Executor = _file(compute).create(compute)
    return executor


def parallel(compute: Compute) -> int:
    """Return how many clients are computed at the same time. Raises the errors of `create`."""
    number: int = _file(compute).parallel(compute)
    return number


def _file(compute: Compute) -> Any:
    return import_module(f"{__name__}.{compute.executor.module}")
