"""The executors, one per file, and `create`, which makes the executor that ``compute.executor`` names.

Such a file has a subclass of `Executor`, and its `create`, a function of `Compute`.
"""

from importlib import import_module

from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.settings import Compute


def create(compute: Compute) -> Executor:
    """Return the executor that ``compute.executor`` names; all executors return the same bits.

    Raises InputError if the executor is impossible with these torch threads, on this device, or on this machine.
    """
    executor: Executor = import_module(f"{__name__}.{compute.executor.module}").create(compute)
    return executor
